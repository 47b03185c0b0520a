// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_sums.cuh: sums for two planes of operands, the high and low parts of f32:
// accumulators of the tensor cores, and separate f32 sums.
// Read next  implicit_gemm_tma_gather.cuh, implicit_gemm_tma_weight.cuh
#pragma once

#include "framework/cuda/tensor_cores/matrix_step.cuh"

namespace convscope::implicit_gemm_tma {

#if defined(CONVSCOPE_MATRIX_STEP)

// With two planes, the accumulators are added to separate f32 sums after this many terms, because
// the tensor cores round towards zero.
constexpr int kWholeDepths = 256;

template <int kTiles, int kSums>
__device__ inline void clear(float (&whole)[kTiles][kSums]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < kSums; ++e) whole[j][e] = 0;
  }
}
template <int kTiles, int kSums>
__device__ inline void add_to_whole(float (&sums)[kTiles][kSums], float (&whole)[kTiles][kSums]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    matrix_tile::hold(sums[j]);
#pragma unroll
    for (int e = 0; e < kSums; ++e) whole[j][e] += sums[j][e];
  }
}
// Adds products high high and high low (adjacent columns) and low high to the f32 sums.
template <int kTiles, int kBoth, int kSums>
__device__ inline void add_to_whole(float (&both)[kTiles][kBoth], float (&small)[kTiles][kSums],
                                    float (&whole)[kTiles][kSums]) {
  static_assert(kBoth == 2 * kSums);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    matrix_tile::hold(both[j]);
    matrix_tile::hold(small[j]);
#pragma unroll
    for (int e = 0; e < kSums; ++e) whole[j][e] += small[j][e] + both[j][kSums + e] + both[j][e];
  }
}

#endif

}  // namespace convscope::implicit_gemm_tma
