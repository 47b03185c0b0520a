// SPDX-License-Identifier: Apache-2.0
// tma.cuh: copies boxes of tensors into shared memory with TMA (sm_90). Barriers signal that a box
// has arrived, or that a buffer may be overwritten.
//
//   if (thread == 0) start_phases(&full, 1);  phases_are_started();  __syncthreads();
//   one thread:  expect(&full, bytes); load_box(tile, map, &full, c, w, 0, h, n);
//   all others:  wait_phase(&full, parity);       // parity 0, 1, 0, ... per round
//                ... arrive(&empty) ...
// A round (phase) of a barrier ends when all arrivals have been made (expect() is one) and all
// expected bytes have arrived. In the emulation, a box arrives at once, and a waiting thread lets
// others run.
// Read next  tensor_map.h; matrix_tile.cuh: multiplies the boxes
#pragma once

#include <cstdint>
#include <cstring>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/tensor_map.h"

#if defined(CONVSCOPE_CUDA_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define CONVSCOPE_TMA 1
#endif

namespace convscope::tma {

#if defined(CONVSCOPE_CUDA_EMULATED)

// The 64 bits of an emulated barrier: arrivals per round, arrivals left in this round, and a word
// of 2^20 + the number of missing bytes, with the parity of the round as the lowest bit.
struct Phases {
  std::uint16_t arrivals, left;
  std::uint32_t bytes_and_parity;
};
inline constexpr std::uint32_t kNoBytes = 1u << 20;

inline Phases& phases_of(std::uint64_t* barrier) { return *reinterpret_cast<Phases*>(barrier); }
inline void end_round_if_complete(std::uint64_t* barrier) {
  Phases& p = phases_of(barrier);
  if (p.left != 0 || p.bytes_and_parity >> 1 != kNoBytes) return;
  p.left = p.arrivals;
  p.bytes_and_parity ^= 1;
  emulation::wake(barrier);
}
inline void start_phases(std::uint64_t* barrier, unsigned arrivals) {
  phases_of(barrier) = {static_cast<std::uint16_t>(arrivals), static_cast<std::uint16_t>(arrivals),
                        kNoBytes << 1};
  // Nothing else may use the barrier's memory until the block ends (PTX would require
  // mbarrier.inval first).
  emulation::watch(
      barrier, arrivals,
      [](const void* place, unsigned all) {
        Phases p;
        std::memcpy(&p, place, sizeof(p));
        return p.arrivals == all && p.left >= 1 && p.left <= all &&
               p.bytes_and_parity >> 1 == kNoBytes;
      },
      "something else was written to the address of a barrier, or boxes are missing");
}
inline void phases_are_started() {}
inline void fetch_map(const TensorMap&) {}
inline void count_bytes(std::uint64_t* barrier, int bytes) {  // > 0: expected, < 0: arrived
  phases_of(barrier).bytes_and_parity += static_cast<std::uint32_t>(bytes) << 1;
}
inline void arrive(std::uint64_t* barrier) {
  Phases& p = phases_of(barrier);
  if (p.left == 0) emulation::stop("more arrivals at a barrier than its round has");
  --p.left;
  end_round_if_complete(barrier);
}
inline void expect(std::uint64_t* barrier, unsigned bytes) {
  count_bytes(barrier, static_cast<int>(bytes));
  arrive(barrier);
}
inline void wait_phase(std::uint64_t* barrier, unsigned parity) {
  while ((phases_of(barrier).bytes_and_parity & 1u) == parity) {
    emulation::wait_for(barrier, "wait_phase");
  }
}
inline void group_sync(unsigned barrier, unsigned threads) {
  emulation::named_barrier(barrier, threads);
}
// Rounds an f32 number to 10 bits of mantissa, to nearest, ties to even, as the TMA of an H100 does
// (verified bit by bit). NaN stays NaN.
inline void round_to_tf32(unsigned char* f32) {
  std::uint32_t bits;
  std::memcpy(&bits, f32, 4);
  if ((bits & 0x7f800000u) == 0x7f800000u) return;
  bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
  std::memcpy(f32, &bits, 4);
}
inline void load_box(unsigned char* shared, const TensorMap& map, std::uint64_t* barrier, int c0,
                     int c1, int c2, int c3, int c4) {
  EmulatedTensorMap z;
  std::memcpy(&z, map.bytes, sizeof(z));
  const int first[kTensorMapRank] = {c0, c1, c2, c3, c4};
  if (reinterpret_cast<std::uintptr_t>(shared) % 128 != 0) {
    emulation::stop("a box begins at an address that is not a multiple of 128");
  }
  const auto* const from = static_cast<const unsigned char*>(z.tensor);
  unsigned char* to = shared;
  for (int e = 0; e < z.box[4]; ++e) {
    for (int d = 0; d < z.box[3]; ++d) {
      for (int c = 0; c < z.box[2]; ++c) {
        for (int b = 0; b < z.box[1]; ++b, to += z.box[0] * z.element_bytes) {
          const int at[kTensorMapRank] = {c0, first[1] + b * z.steps[1], first[2] + c * z.steps[2],
                                          first[3] + d * z.steps[3], first[4] + e * z.steps[4]};
          std::int64_t place = 0;
          bool inside = true;
          for (int i = 1; i < kTensorMapRank; ++i) {
            inside = inside && at[i] >= 0 && at[i] < z.sizes[i];
            place += at[i] * z.strides[i];
          }
          const int bytes = z.element_bytes;
          for (int a = 0; a < z.box[0]; ++a) {
            auto* const element = reinterpret_cast<unsigned char*>(
                swizzled_place(reinterpret_cast<std::uintptr_t>(to + a * bytes), z.box[0] * bytes));
            const auto size = static_cast<std::size_t>(bytes);
            if (inside && c0 + a >= 0 && c0 + a < z.sizes[0]) {
              std::memcpy(element, from + (place + c0 + a) * bytes, size);
              if (bytes == 4) round_to_tf32(element);
            } else {
              std::memset(element, 0, size);
            }
          }
        }
      }
    }
  }
  count_bytes(barrier, static_cast<int>(shared - to));
  end_round_if_complete(barrier);
}

#elif defined(CONVSCOPE_TMA)

__device__ inline unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
__device__ inline void start_phases(std::uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
// Prefetches the map. Call it before the first load_box().
__device__ inline void fetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Makes started barriers visible to TMA. Threads that have called start_phases() then call this
// function, before the __syncthreads() of the block.
__device__ inline void phases_are_started() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ inline void expect(std::uint64_t* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ inline void wait_phase(std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Waits like __syncthreads(), but for `threads` threads (some of the block's warps) at a barrier
// with a number from 1 to 15.
// 15.
__device__ inline void group_sync(unsigned barrier, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void load_box(unsigned char* shared, const TensorMap& map, std::uint64_t* barrier,
                                int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

#endif

}  // namespace convscope::tma
