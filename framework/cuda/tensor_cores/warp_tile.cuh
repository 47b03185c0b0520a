// SPDX-License-Identifier: Apache-2.0
// warp_tile.cuh: D [16 x 8] += A [16 x 16] B [16 x 8] by one warp on the tensor cores, A and B in
// fp16/bf16 in shared memory. It uses ldmatrix and mma.sync from sm_80, and plain loops over the
// same bytes in the emulation. It is for small products, where each warp has a few tiles.
//
// Shared memory   A has rows of `pitch` elements, K inner. A transposed A has `pitch` elements per
//                 index of K, rows inner. B has columns of `pitch` elements, K inner. Rows and
//                 columns begin at multiples of 16 bytes. With (pitch / 8) odd, eight rows use all
//                 banks.
// Registers       lane l has D[row][column] for row = l/4 + 8 i, column = 2 (l%4) + e in
//                 d[2 i + e]
// Numerics        Products are exact and accumulators are f32; tensor cores round accumulators
//                 towards zero.
// Read next  matrix_tile.cuh: the larger product of four warps; mma.cuh: the instructions
#pragma once

#include "framework/cuda/launch.cuh"
#include "framework/dtype.h"
#include "framework/int_math.h"

#if !defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/tensor_cores/matrix_tile.cuh"
#endif

namespace convscope::warp_tile {

inline constexpr int kRows = 16, kColumns = 8, kDepth = 16;

// Returns the distance between rows in elements: `count` rounded up to whole K steps, then to an
// odd number of 16-byte units, so that eight rows use all banks.
constexpr int pitch_of(int count) { return round_up(count, kDepth) + 8; }

template <class Half, bool kTransposed>
__device__ inline void multiply(float (&d)[4], const Half* a, int a_pitch, const Half* b,
                                int b_pitch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#if defined(CONVSCOPE_CUDA_EMULATED)
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8;
    const Half* const column = b + (lane % 4 * 2 + i % 2) * b_pitch;
    for (int depth = 0; depth < kDepth; ++depth) {
      const Half factor = kTransposed ? a[depth * a_pitch + row] : a[row * a_pitch + depth];
      d[i] += static_cast<float>(factor) * static_cast<float>(column[depth]);
    }
  }
#elif defined(__CUDA_ARCH__)
  const int eight = lane / 8;  // the 8 x 8 tile that this lane addresses
  unsigned rows[4];
  load_matrices<kTransposed>(rows, kTransposed
                                       ? a + (lane % 8 + eight / 2 * 8) * a_pitch + eight % 2 * 8
                                       : a + lane % 16 * a_pitch + lane / 16 * 8);
  const Half* const column = b + lane / 4 * b_pitch + lane % 4 * 2;
  mma<Half>(d, rows, *reinterpret_cast<const unsigned*>(column),
            *reinterpret_cast<const unsigned*>(column + 8));
#endif
}

}  // namespace convscope::warp_tile
