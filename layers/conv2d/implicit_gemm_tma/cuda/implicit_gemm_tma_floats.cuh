// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_floats.cuh: converts sums of scaled operands back to f32, and stores them from
// the registers of a warp group, 16 bytes at a time.
// Read next  layers/dispatch/layout/half_operands.h, the operands; implicit_gemm_tma_gather.cuh
#pragma once

#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/shared/cuda/half_pack.cuh"

namespace convscope::implicit_gemm_tma {

// Returns the exponent e of the factor 2^e that undoes the scales of two operands. The scales are
// powers of two, 2^-114 to 2^126.
__device__ inline int unscale_exponent(float a, float b) {
  return 254 - static_cast<int>(__float_as_uint(a) >> 23) -
         static_cast<int>(__float_as_uint(b) >> 23);
}

// Multiplies by 2^e in two steps, because 2^e may exceed the range of f32.
template <int kCount>
__device__ inline void times_power_of_two(int e, float (&sums)[kCount]) {
  const float first = half_tiles::power_of_two(e / 2);
  const float second = half_tiles::power_of_two(e - e / 2);
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = sums[i] * first * second;
}

// Stores one row of a tile, which is held by four lanes: each lane has two columns of every block
// of 8. Adds the residual and applies ReLU. Then neighbouring lanes exchange half of two blocks, so
// that each lane stores four columns. Call it with all lanes of a warp. `half` selects one of a
// lane's two rows. The result has `columns_left` columns from here on, a multiple of 8.
template <int kSums>
__device__ inline void store_floats(float (&sums)[kSums], int half, int columns_left, bool relu,
                                    const float* residual, float* to) {
  constexpr int kBlocks = kSums / 4;
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const bool odd = lane % 2 != 0;
  if (residual != nullptr) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (8 * j < columns_left) {
        const float2 more = *reinterpret_cast<const float2*>(residual + 8 * j + 2 * lane);
        sums[4 * j + 2 * half] += more.x;
        sums[4 * j + 2 * half + 1] += more.y;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kBlocks; j += 2) {
    const float a0 = finished(sums[4 * j + 2 * half], relu);
    const float a1 = finished(sums[4 * j + 2 * half + 1], relu);
    const float b0 = finished(sums[4 * j + 4 + 2 * half], relu);
    const float b1 = finished(sums[4 * j + 4 + 2 * half + 1], relu);
    const float near0 = __shfl_xor_sync(kAllLanes, odd ? a0 : b0, 1);
    const float near1 = __shfl_xor_sync(kAllLanes, odd ? a1 : b1, 1);
    const int column = 8 * j + (odd ? 8 : 0) + lane / 2 * 4;
    if (column < columns_left) {
      *reinterpret_cast<float4*>(to + column) =
          odd ? make_float4(near0, near1, b0, b1) : make_float4(a0, a1, near0, near1);
    }
  }
}

}  // namespace convscope::implicit_gemm_tma
