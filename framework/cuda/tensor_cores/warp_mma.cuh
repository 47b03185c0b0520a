// SPDX-License-Identifier: Apache-2.0
// warp_mma.cuh: mma.cuh and mma_tf32.cuh for kernels that manage fragments themselves. It contains
// products of one warp on the tensor cores (sm_80) and loads of 8 x 8 tiles, each with an emulated
// version.
//
//   unsigned a[4];
//   load_matrices<false>(a, row_of_this_lane);    // rows of 16 bytes, at any address
//   mma<BFloat16>(sums, a, b0, b1);               // sums[0..3] += A [16 x 16] B [16 x 8]
//
// Addresses in shared memory have the type SharedAddress. It has 32 bits on a GPU, where adding to
// a 64-bit pointer takes three instructions instead of one.
//
// load_matrices() also loads tiles whose rows have four f32 elements: lane l gets element l%4 of
// row l/4, as mma_tf32() requires.
// Source: PTX ISA, "Warp level matrix instructions"
// Read next  mma.cuh: the layout of fragments in lanes
#pragma once

#include <cstring>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/tensor_cores/mma_tf32.cuh"

#if defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/emulation/products.h"
#else
#include "framework/cuda/tensor_cores/mma.cuh"
#endif

namespace convscope {

struct SharedAddress {
#if defined(CONVSCOPE_CUDA_EMULATED)
  unsigned char* at;
#else
  unsigned at;
#endif
  __device__ SharedAddress operator+(int bytes) const { return {at + bytes}; }
};
__device__ inline SharedAddress shared_address(void* place) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return {static_cast<unsigned char*>(place)};
#else
  return {static_cast<unsigned>(__cvta_generic_to_shared(place))};
#endif
}

__device__ inline uint2 load_two_words(SharedAddress from) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  uint2 words;
  std::memcpy(&words, from.at, sizeof words);
  return words;
#else
  uint2 words;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "r"(from.at)
               : "memory");
  return words;
#endif
}

// Copies 16 bytes as async_copy<16> does, bypassing L1. With `inside` false, it writes 16 bytes of
// zeros, and `global` may be any address.
__device__ inline void async_copy_piece(SharedAddress to, const void* global, bool inside) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  async_copy<16, false>(to.at, global, inside);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.at), "l"(global),
               "r"(inside ? 16 : 0)
               : "memory");
#endif
}

#if defined(CONVSCOPE_CUDA_EMULATED)

template <bool kTransposed>
inline void load_matrices(unsigned (&tiles)[4], SharedAddress row) {
  struct Words {
    unsigned w[4];
  };
  const Words words = emulation::warp_collective<Words>(
      "load_matrices", row.at,
      [](const emulation::Lanes<unsigned char*>& in, emulation::Lanes<Words>& out) {
        for (unsigned lane = 0; lane < 32; ++lane) {
          for (unsigned tile = 0; tile < 4; ++tile) {
            std::uint16_t pair[2];
            for (unsigned e = 0; e < 2; ++e) {
              const unsigned i = lane / 4, j = lane % 4 * 2 + e;
              const unsigned from = kTransposed ? j : i;
              const unsigned at = kTransposed ? i : j;
              std::memcpy(&pair[e], in[tile * 8 + from] + 2 * at, 2);
            }
            out[lane].w[tile] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
          }
        }
      },
      kAllLanes);
  std::memcpy(tiles, words.w, sizeof tiles);
}

template <class Half>
inline void mma(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  struct Operands {
    unsigned a[4], b[2];
  };
  struct Sums {
    float d[4];
  };
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const Sums sums = emulation::warp_collective<Sums>(
      "mma", mine,
      [](const emulation::Lanes<Operands>& in, emulation::Lanes<Sums>& out) {
        emulation::WarpFactors<float, 16> factors;
        for (unsigned lane = 0; lane < 32; ++lane) {
          for (unsigned i = 0; i < 4; ++i) {
            const float2 pair = floats_from_pair<Half>(in[lane].a[i]);
            float* const to = &factors.rows[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
            to[0] = pair.x;
            to[1] = pair.y;
          }
          for (unsigned i = 0; i < 2; ++i) {
            const float2 pair = floats_from_pair<Half>(in[lane].b[i]);
            factors.columns[lane % 4 * 2 + i * 8][lane / 4] = pair.x;
            factors.columns[lane % 4 * 2 + i * 8 + 1][lane / 4] = pair.y;
          }
        }
        factors.multiply(out);
      },
      kAllLanes);
  for (int i = 0; i < 4; ++i) d[i] += sums.d[i];
}

#else

template <bool kTransposed>
__device__ inline void load_matrices(unsigned (&tiles)[4], SharedAddress row) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"(row.at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"(row.at)
                 : "memory");
  }
}

#endif

// Computes d += A B over 32 bytes of K: 16 fp16/bf16 elements, or 8 f32 elements read as tf32.
template <class T>
__device__ inline void mma_step(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (sizeof(T) == 4) {
    const float operands[4] = {__uint_as_float(a[0]), __uint_as_float(a[1]), __uint_as_float(a[2]),
                              __uint_as_float(a[3])};
    mma_tf32(d, operands, __uint_as_float(b0), __uint_as_float(b1));
  } else {
    mma<T>(d, a, b0, b1);
  }
}

}  // namespace convscope
