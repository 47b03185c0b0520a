// SPDX-License-Identifier: Apache-2.0
// half_steps.cuh: multiplies a tile of an fp16/bf16 matrix product, step by step, while the next
// steps are copied into shared memory, and writes the accumulators as images. Each algorithm has
// its own code that loads the operands.
// Read next  framework/cuda/tensor_cores/matrix_tile.cuh; half_pack.cuh
#pragma once

#include <cstdint>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/tensor_cores/matrix_tile.cuh"
#include "layers/conv2d/shared/cuda/half_pack.cuh"

namespace convscope::half_tiles {

// A block: kRowGroups x kColumnGroups warp groups, each with accumulators of 64 rows and kColumns
// columns. kTerms 1: one product. kTerms 3: low high + high low + high high of split operands.
template <class Half_, class Out_, int kTerms_, int kRowGroups_, int kColumnGroups_, int kColumns_,
          int kStages_, int kBlocks_, int kUnderWay_ = kStages_ >= 3 ? 1 : 0>
struct Variant {
  using Half = Half_;
  using Out = Out_;
  static constexpr int kTerms = kTerms_;
  static constexpr int kPlanes = kTerms == 3 ? 2 : 1;
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kColumnGroups = kColumnGroups_;
  static constexpr int kColumns = kColumns_;  // columns of a warp group
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // blocks that share an SM
  // The number of steps whose product may still be running when the next product is issued to the
  // tensor cores. The stage of such a step is filled again one step later, when its product has
  // ended.
  static constexpr int kUnderWay = kUnderWay_;
  static constexpr int kAhead = kStages - 1 - kUnderWay;  // steps that are copied in advance
  static constexpr int kDeep = 1;  // steps of 64 terms in a stage, between two barriers
  static constexpr int kThreads = 128 * kRowGroups * kColumnGroups;
  static constexpr int kTileRows = 64 * kRowGroups;
  static constexpr int kTileColumns = kColumns * kColumnGroups;
  static constexpr int kSums = kColumns / 2;                          // accumulators of a thread
  static constexpr int kRowsBytes = kTileRows * kTileRowBytes;        // of a plane
  static constexpr int kColumnsBytes = kTileColumns * kTileRowBytes;  // of a plane
  static constexpr int kStageBytes = kPlanes * (kRowsBytes + kColumnsBytes);
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // with alignment, no tables
};

// With three terms, accumulators are rounded towards zero at each addition. After this many steps
// they restart from zero, and their old values are added to f32 sums, rounded to nearest.
inline constexpr int kStepsToPromotion = 4;

struct NothingMore {
  __device__ void operator()(int) const {}
};

// Computes sums = the product of `steps` steps. load(step, stage) starts the copies of one step.
// arrived(step) waits for those copies that async_copy_wait() does not wait for.
template <class V, bool kDepthOuter, class Load, class Arrived = NothingMore>
__device__ inline void sum_steps(float (&sums)[V::kSums], unsigned char* stages, int steps,
                                 const Load& load, const Arrived& arrived = {}) {
  using Half = typename V::Half;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int from_rows = group % V::kRowGroups * kTileBlockBytes;
  const int from_columns =
      V::kPlanes * V::kRowsBytes + group / V::kRowGroups * (V::kColumns * kTileRowBytes);
#pragma unroll
  for (int i = 0; i < V::kSums; ++i) sums[i] = 0;
  [[maybe_unused]] float fresh[V::kTerms == 3 ? V::kSums : 1];
  if constexpr (V::kTerms == 3) {
#pragma unroll
    for (int i = 0; i < V::kSums; ++i) fresh[i] = 0;
  }
#pragma unroll
  for (int i = 0; i < V::kAhead; ++i) {
    if (i < steps) load(i, stages + i * V::kStageBytes);
    async_copy_commit();
  }
  int stage = 0;
  int to_fill = V::kAhead;
  for (int step = 0; step < steps; ++step) {
    async_copy_wait<V::kAhead - 1>();
    arrived(step);
    order_shared_writes_for_matrix_unit();
    __syncthreads();  // the step is loaded, and no thread reads stage `to_fill` any longer
    const unsigned char* const rows = stages + stage * V::kStageBytes + from_rows;
    const unsigned char* const columns = stages + stage * V::kStageBytes + from_columns;
    matrix_tile::begin();
    if constexpr (V::kTerms == 1) {
      matrix_tile::hold(sums);
#pragma unroll
      for (int i = 0; i < V::kDeep; ++i) {
        constexpr int kBytes = V::kStageBytes / V::kDeep;
        matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(sums, rows + i * kBytes,
                                                              columns + i * kBytes, true);
      }
    } else {
      static_assert(V::kDeep == 1);
      matrix_tile::hold(fresh);
      const unsigned char* const rows_low = rows + V::kRowsBytes;
      const unsigned char* const columns_low = columns + V::kColumnsBytes;
      matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(fresh, rows_low, columns,
                                                            step % kStepsToPromotion != 0);
      matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(fresh, rows, columns_low, true);
      matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(fresh, rows, columns, true);
    }
    matrix_tile::commit();
    if (step + V::kAhead < steps) load(step + V::kAhead, stages + to_fill * V::kStageBytes);
    async_copy_commit();
    if constexpr (V::kTerms == 1) {
      matrix_tile::wait<V::kUnderWay>();
      matrix_tile::hold(sums);
    } else if (step % kStepsToPromotion == kStepsToPromotion - 1 || step == steps - 1) {
      matrix_tile::wait<0>();
      matrix_tile::hold(fresh);
#pragma unroll
      for (int i = 0; i < V::kSums; ++i) sums[i] += fresh[i];
    } else {
      matrix_tile::wait<V::kUnderWay>();
      matrix_tile::hold(fresh);
    }
    stage = stage == V::kStages - 1 ? 0 : stage + 1;
    to_fill = to_fill == V::kStages - 1 ? 0 : to_fill + 1;
  }
  matrix_tile::wait<0>();
  matrix_tile::hold(sums);
  async_copy_wait<0>();
  __syncthreads();  // the stages may be reused
}

// Stores the sums of a thread to `out`. `at` holds the offsets of the tile's pixels, relative to
// the first image of the tile (-1: no pixel).
template <class V, bool kPaired, class Out>
__device__ inline void store_tile(const float (&sums)[V::kSums], Out* out, const int* at,
                                  std::int64_t image_at, int area, int first_channel, int rows_left,
                                  float2 scale, const Finish& end) {
  std::int64_t row_at[2];
  float bias[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int channel = first_channel + 8 * i;
    row_at[i] = image_at + static_cast<std::int64_t>(channel) * area;
    bias[i] = end.bias != nullptr && 8 * i < rows_left
                  ? to_float(static_cast<const Out*>(end.bias)[channel])
                  : 0;
  }
  const Out* const residual = static_cast<const Out*>(end.residual);
#pragma unroll
  for (int j = 0; j < V::kColumns / 8; ++j) {
    const int2 to = *reinterpret_cast<const int2*>(at + 8 * j);
    if (to.x < 0) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (8 * i >= rows_left) continue;
      float y[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        y[e] = sums[4 * j + 2 * i + e] * scale.x * scale.y;
        if (end.bias != nullptr) y[e] += bias[i];
      }
      Out* const first = out + row_at[i] + to.x;
      y[0] = finished(y[0], residual, row_at[i] + to.x, end.relu);
      y[1] = finished(y[1], to.y >= 0 ? residual : nullptr, row_at[i] + to.y, end.relu);
      if constexpr (kPaired && sizeof(Out) == 4) {
        *reinterpret_cast<float2*>(first) = make_float2(y[0], y[1]);
      } else if constexpr (kPaired) {
        *reinterpret_cast<unsigned*>(first) = pair_from_floats<Out>(y[0], y[1]);
      } else {
        *first = from_float<Out>(y[0]);
        if (to.y >= 0) out[row_at[i] + to.y] = from_float<Out>(y[1]);
      }
    }
  }
}

// Destination of a tile of NHWC images; see store_nhwc().
struct NhwcTile {
  void* out = nullptr;     // [pixels][lanes in pieces]
  float* parts = nullptr;  // sums [pixels][lanes] instead, when the reduction is split
  int lanes = 0;           // of a pixel
  int channel = 0;         // of the tile's first row
  int rows_left = 0;       // of the group, from there on
  std::int64_t first_pixel = 0;
};

// Stores the sums of a block to `z`. The sums are transposed in shared memory, so that eight
// channels of a pixel are 16 bytes and neighbouring threads have neighbouring channels. `at` has
// the offsets of the tile's pixels relative to first_pixel (-1: no pixel); this array is stored
// before the memory `transposed`. Groups have whole pieces of channels, so a piece belongs to one
// group. `unscale` undoes the scales of f32.
template <class V>
__device__ inline void store_nhwc(const float (&sums)[V::kSums], const int* at,
                                           float* transposed, const NhwcTile& z,
                                           const Finish& end, float2 unscale) {
  // The row pitch is 4 modulo 32, so that a warp's fragment uses all banks.
  constexpr int kRow = V::kTileRows + 4;
  static_assert(V::kTileColumns * (kRow + 1) * 4 <= V::kStages * V::kStageBytes);
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / 128;
  const int row = group % V::kRowGroups * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
  const int column = group / V::kRowGroups * V::kColumns + thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < V::kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float sum = sums[4 * j + 2 * i + e];
        if constexpr (sizeof(typename V::Out) == 4) sum = sum * unscale.x * unscale.y;
        transposed[(column + 8 * j + e) * kRow + row + 8 * i] = sum;
      }
    }
  }
  __syncthreads();
  constexpr int kPieces = V::kTileRows / kPieceElements;
  for (int i = thread; i < V::kTileColumns * kPieces; i += V::kThreads) {
    const int pixel = i / kPieces;
    const int first = i % kPieces * kPieceElements;
    if (at[pixel] < 0 || first >= z.rows_left) continue;
    const auto* const from = reinterpret_cast<const float4*>(transposed + pixel * kRow + first);
    const float4 low = from[0], high = from[1];
    const std::int64_t place =
        (z.first_pixel + at[pixel]) * z.lanes + z.channel + first;  // offset of the first channel
    if (z.parts != nullptr) {
      auto* const to = reinterpret_cast<float4*>(z.parts + place);
      to[0] = low;
      to[1] = high;
      continue;
    }
    float v[kPieceElements] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    finish_piece<typename V::Out>(end, v, z.channel + first, z.rows_left - first, z.out,
                                  place / kPieceElements);
  }
}

}  // namespace convscope::half_tiles
