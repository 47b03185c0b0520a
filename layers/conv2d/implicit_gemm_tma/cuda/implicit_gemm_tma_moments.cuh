// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_moments.cuh: mean and spread of the channels of y for the following batch norm.
// The kernel computes them while the accumulators are in registers, so y is not read again.
//
// Method    A thread has 2 or 4 pixels of kColumns / 4 columns. It computes the mean of each
//           column's pixels and the sum of squares about the mean. The eight lanes with the same
//           columns merge their moments and divide the columns: 8 columns become 4, 2 and 1, as in
//           a transposition. So a lane keeps kColumns / 32 columns for its warp. It merges them
//           over all tiles of the block, which have the same columns. When the block ends, the
//           warps are merged in shared memory: the result is one part for each block and column.
//           With split-K, the pass that adds the parts of y computes the moments.
// Numerics  as channel_moments.cuh, where L is 3 (lanes) + 8 (warps) + the number of tiles of a
//           block. y is f32, so the accumulators are the stored values. Tiles, lanes and warps are
//           merged in a fixed order.
// Cost      saves a second read of y. fp16/bf16 have no such kernel: y has half as many bytes,
//           mostly still in L2, and reading y takes no longer than the merges.
// Read next framework/cuda/channel_moments.cuh; implicit_gemm_tma_gather.cuh
#pragma once

#include "framework/cuda/channel_moments.cuh"
#include "framework/cuda/tma.cuh"

namespace convscope::implicit_gemm_tma {

constexpr unsigned kConsumers = 256;  // threads of the two warp groups that multiply

struct NoMoments {};

// Moments of one warp. A lane's column i is 32 i + 8 (lane / 8) + 2 (lane % 4) + lane / 4 % 2.
template <class V>
struct WarpMoments {
  static constexpr int kOwn = V::kColumns / 32;
  static_assert(kOwn > 0 && V::kScaled);
  float count = 0;
  float mean[kOwn] = {};
  float squares[kOwn] = {};
};

#if defined(CONVSCOPE_MATRIX_STEP)

// Halves the columns of this lane: a bit of the lane number decides whether it keeps the first or
// the last kHalf of its 2 kHalf columns. Merges the moments of the kept columns with those of the
// lane that differs in this bit.
template <int kHalf>
__device__ inline void merge_lanes(float (&mean)[8], float (&squares)[8],
                                   const MomentShares& shares) {
  constexpr int kOffset = 4 * kHalf;
  const bool high = (threadIdx.x & kOffset) != 0;
#pragma unroll
  for (int c = 0; c < kHalf; ++c) {
    const float sent_mean = high ? mean[c] : mean[c + kHalf];
    const float sent_squares = high ? squares[c] : squares[c + kHalf];
    if (high) {
      mean[c] = mean[c + kHalf];
      squares[c] = squares[c + kHalf];
    }
    merge_moments(mean[c], squares[c], __shfl_xor_sync(kAllLanes, sent_mean, kOffset),
                  __shfl_xor_sync(kAllLanes, sent_squares, kOffset), shares);
  }
}

// Adds the moments of a tile. `sums` has the layout of matrix_tile.cuh; `valid` marks the rows of
// this thread that are pixels of y. Call it with all lanes of the warp. It does not modify `sums`:
// otherwise the compiler would move them to other registers and wait for each product separately.
template <class V>
__device__ inline void add_moments(const bool (&valid)[2 * V::kTiles],
                                   const float (&sums)[V::kTiles][V::kColumns / 2],
                                   WarpMoments<V>& own) {
  constexpr int kRows = 2 * V::kTiles;
  static_assert(kRows <= 4);
  float count = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) count += valid[row] ? 1.0f : 0.0f;
  // With no valid row the sum is 0.
  const float share = count > 3 ? 0.25f : count > 2 ? 1.0f / 3 : count > 1 ? 0.5f : 1.0f;
  MomentShares lane_shares[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    lane_shares[i] = shares_of(count, __shfl_xor_sync(kAllLanes, count, 16 >> i));
  }
  const MomentShares tile_shares = shares_of(own.count, count);
#pragma unroll
  for (int i = 0; i < WarpMoments<V>::kOwn; ++i) {
    float mean[8], squares[8];
#pragma unroll
    for (int c = 0; c < 8; c += 2) {
      const int at = 4 * (4 * i + c / 2);  // of the columns c and c + 1, upper row
      float2 stored[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float(&from)[V::kColumns / 2] = sums[row / 2];
        const int place = at + 2 * (row % 2);
        stored[row] = make_float2(from[place], from[place + 1]);
      }
      float2 sum = make_float2(0, 0), spread = make_float2(0, 0);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (valid[row]) sum.x += stored[row].x, sum.y += stored[row].y;
      }
      mean[c] = sum.x * share;
      mean[c + 1] = sum.y * share;
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float x = stored[row].x - mean[c], y = stored[row].y - mean[c + 1];
        if (valid[row]) spread.x = ::fmaf(x, x, spread.x), spread.y = ::fmaf(y, y, spread.y);
      }
      squares[c] = spread.x;
      squares[c + 1] = spread.y;
    }
    merge_lanes<4>(mean, squares, lane_shares[0]);
    merge_lanes<2>(mean, squares, lane_shares[1]);
    merge_lanes<1>(mean, squares, lane_shares[2]);
    merge_moments(own.mean[i], own.squares[i], mean[0], squares[0], tile_shares);
  }
}

// Merges the moments of the block's warps and stores them in part [4][lanes] (count, mean, 0, sum
// of squares), from `column` on. All warps that multiply call it after their last tile. `shared`
// is the memory of the patches, which no warp reads any longer.
template <class V>
__device__ inline void put_moments(const WarpMoments<V>& own, int column, int lanes, float* shared,
                                   float* part) {
  constexpr int kWarps = kConsumers / 32;
  float* const counts = shared;                         // [warp]
  float* const means = counts + kWarps;                 // [warp][column]
  float* const squares = means + kWarps * V::kColumns;  // [warp][column]
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  tma::group_sync(1, kConsumers);
  if (lane == 0) counts[warp] = own.count;
#pragma unroll
  for (int i = 0; i < WarpMoments<V>::kOwn; ++i) {
    const int at = warp * V::kColumns + 32 * i + 8 * (lane / 8) + 2 * (lane % 4) + lane / 4 % 2;
    means[at] = own.mean[i];
    squares[at] = own.squares[i];
  }
  tma::group_sync(1, kConsumers);
  if (thread >= V::kColumns || column + thread >= lanes) return;
  float count = counts[0], mean = means[thread], sum = squares[thread];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) {
    const MomentShares shares = shares_of(count, counts[w]);
    merge_moments(mean, sum, means[w * V::kColumns + thread], squares[w * V::kColumns + thread],
                  shares);
  }
  float* const to = part + column + thread;
  to[0] = count;
  to[lanes] = mean;
  to[2 * lanes] = 0;
  to[3 * lanes] = sum;
}

#endif

}  // namespace convscope::implicit_gemm_tma
