// SPDX-License-Identifier: Apache-2.0
// async_copy.cuh: copies from global to shared memory that bypass registers (cp.async, sm_80).
//
//   async_copy<16>(&tile[i], &x[j], inside);   // 4, 8 or 16 bytes; zeros unless `inside`
//   async_copy_commit();                       // all copies since the last commit are one group
//   async_copy_wait<1>();                      // until at most 1 group of this thread is pending
//   __syncthreads();                           // makes the copies of other threads visible
// In the emulation, a copy has finished when async_copy() returns.
//
// A bulk copy (sm_90) moves a whole tile, and one thread issues it. A barrier in shared memory
// counts the bytes that have arrived:
//   if (thread == 0) start_barrier(&barrier);      // then __syncthreads()
//   if (thread == 0) expect_bytes(&barrier, 8192); bulk_copy(tile, x, 8192, &barrier);
//   wait_for_bytes(&barrier, parity);              // all threads; parity 0, 1, 0, ... per round
#pragma once

#include <cstdint>
#include <cstring>

#include "framework/cuda/runtime.cuh"

namespace convscope {

// Copies kBytes; both addresses are multiples of kBytes. With `inside` false, it reads nothing and
// writes zeros. 16-byte copies bypass L1 unless kKeepInL1 is set. Set kKeepInL1 for data that other
// blocks of this SM, or later steps of this block, read again.
template <int kBytes, bool kKeepInL1 = true>
__device__ inline void async_copy(void* shared, const void* global, bool inside = true) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if defined(CONVSCOPE_CUDA_EMULATED)
  if (inside) {
    std::memcpy(shared, global, kBytes);
  } else {
    std::memset(shared, 0, kBytes);
  }
#else
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int read = inside ? kBytes : 0;
  if constexpr (kBytes == 16 && !kKeepInL1) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(read)
                 : "memory");
  }
#endif
}

__device__ inline void async_copy_commit() {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int kGroups>
__device__ inline void async_copy_wait() {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

// True where device code can use bulk copies: on SM 9.0 or later, and in the emulation. For kernels
// only.
#if defined(CONVSCOPE_CUDA_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
inline constexpr bool kBulkCopies = true;
#else
inline constexpr bool kBulkCopies = false;
#endif

__device__ inline void start_barrier(std::uint64_t* barrier) {
#if !defined(CONVSCOPE_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  *barrier = 0;
#endif
}

// Sets the number of bytes that the barrier expects in its current phase. Call it once per phase,
// before the copies.
__device__ inline void expect_bytes(std::uint64_t* barrier, unsigned bytes) {
#if !defined(CONVSCOPE_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
#else
  (void)barrier, (void)bytes;
#endif
}

// Starts a bulk copy. Addresses and sizes are multiples of 16 bytes.
__device__ inline void bulk_copy(void* shared, const void* global, unsigned bytes,
                                 std::uint64_t* barrier) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  std::memcpy(shared, global, bytes);
  (void)barrier;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(global), "r"(bytes), "r"(at)
      : "memory");
#else
  (void)shared, (void)global, (void)bytes, (void)barrier;
#endif
}

__device__ inline void wait_for_bytes(std::uint64_t* barrier, unsigned parity) {
#if !defined(CONVSCOPE_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(at),
      "r"(parity)
      : "memory");
#else
  (void)barrier, (void)parity;
#endif
}

// Orders shared-memory writes of this thread before later reads by wgmma or bulk copies (sm_90).
// Call it after the writes (async_copy_wait included), and before the barrier that precedes the
// reads.
__device__ inline void order_shared_writes_for_matrix_unit() {
#if !defined(CONVSCOPE_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace convscope
