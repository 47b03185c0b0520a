// SPDX-License-Identifier: Apache-2.0
// winograd_fp16x3_product.cuh: the 36 matrix products of Winograd's convolution whose operands are
// high and low fp16 parts: low high + high low + high high on the tensor cores, sums in f32.
//
//   forward          M [36][K][tiles] = U [36][K][C] V [36][C][tiles]      reduction inner, outer
//   backward_data    M [36][C][tiles] = U [36][C][K] V [36][K][tiles]      reduction inner, outer
//   backward_weight  S [36][K][C] = D [36][K][tiles] V [36][C][tiles]^T    reduction inner, inner
// One warp issues TMA loads of a tile of both operands, 64 reduction indices at a time. This warp
// runs as far ahead as stages are free, also beyond the end of a tile. One or two warp groups
// multiply (wgmma). Blocks are persistent. They compute the tiles of one point after another, so
// that the operands of a point stay in L2.
// Read next  framework/cuda/tensor_cores/matrix_step.cuh; winograd_f4x3_fp16x3_cuda.cu
#pragma once

#include <cstdint>

#include "framework/cuda/half.cuh"
#include "framework/cuda/tensor_cores/matrix_step.cuh"
#include "framework/cuda/tma.cuh"
#include "framework/int_math.h"
#include "layers/conv2d/shared/cuda/half_pack.cuh"

namespace convscope::winograd {

constexpr int kFp16x3Points = 36;
constexpr int kDepthStep = 64;
// The tensor cores round accumulators towards zero. After this many steps they restart from zero,
// and their old values are added in f32, rounded to nearest.
constexpr int kStepsToPromotion = 4;

// kRowGroups x kColumnGroups warp groups, each with accumulators of 64 rows and kColumns columns.
template <int kRowGroups_, int kColumnGroups_, int kColumns_, int kStages_, int kBlocks_>
struct ProductTile {
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // blocks that share an SM
  static constexpr int kGroups = kRowGroups_ * kColumnGroups_;
  static constexpr int kThreads = 128 * kGroups + 32;
  static constexpr int kTileRows = 64 * kRowGroups_;
  static constexpr int kTileColumns = kColumns_ * kColumnGroups_;
  static constexpr int kRowsBytes = kTileRows * kTileRowBytes;  // of high or of low parts
  static constexpr int kColumnsBytes = kTileColumns * kTileRowBytes;
  static constexpr int kStageBytes = 2 * (kRowsBytes + kColumnsBytes);
  static constexpr int kSharedBytes = kStages * (kStageBytes + 16) + 1024;  // including alignment
};

struct Product {
  TensorMap a, b;        // [2][36][..][..], fp16: high, low
  float* out = nullptr;  // [parts][36][rows][pitch]
  // Exponents of the scales. Without `row_exponents`, `exponent` is for both operands. With it,
  // `exponent` is for B only, and each row of A has an element of `row_exponents`.
  const int* exponent = nullptr;
  const int* row_exponents = nullptr;
  int rows = 0, columns = 0, pitch = 0;  // columns <= pitch: both even, or equal
  int steps = 0, parts = 1;              // steps and parts of the reduction
  int tiles = 0;
  FastDivisor by_row_tiles, by_column_tiles, by_parts;
};

#if defined(CONVSCOPE_MATRIX_STEP)

struct ProductPlace {
  int row, column, part, point, begin, end;  // begin, end: steps
};
template <class V>
__device__ inline ProductPlace product_place(const Product& z, int tile) {
  ProductPlace out;
  int rest = z.by_row_tiles.divide(tile);
  out.row = (tile - rest * z.by_row_tiles.d) * V::kTileRows;
  int next = z.by_column_tiles.divide(rest);
  out.column = (rest - next * z.by_column_tiles.d) * V::kTileColumns;
  out.point = z.by_parts.divide(next);
  out.part = next - out.point * z.parts;
  out.begin = z.steps * out.part / z.parts;
  out.end = z.steps * (out.part + 1) / z.parts;
  return out;
}

// Loads one step of an operand: high parts, then low parts `low` bytes later.
template <int kLines, bool kOuter>
__device__ inline void load_factor(unsigned char* to, const TensorMap& map, std::uint64_t* full,
                                   int line, int depth, int point) {
#pragma unroll
  for (int plane = 0; plane < 2; ++plane, to += kLines * kTileRowBytes) {
    if constexpr (kOuter) {
#pragma unroll
      for (int j = 0; j < kLines / 64; ++j) {
        tma::load_box(to + j * kTileBlockBytes, map, full, line + 64 * j, depth, point, plane, 0);
      }
    } else {
      tma::load_box(to, map, full, depth, line, point, plane, 0);
    }
  }
}

// Returns the first of a thread's two rows of accumulators. The second row is 8 rows below.
template <class V>
__device__ inline int first_row_of(const ProductPlace& place) {
  const int thread = static_cast<int>(threadIdx.x);
  return place.row + thread / 128 % V::kRowGroups * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
}

template <class V>
__device__ inline void store_product(const Product& z, const ProductPlace& place,
                                     const int (&back)[2], const float (&sums)[V::kColumns / 2]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int column = place.column + thread / 128 / V::kRowGroups * V::kColumns + thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row_of<V>(place) + 8 * i;
    if (row >= z.rows) continue;
    // Scales in two steps, because the whole scale may exceed the range of f32.
    const float first_scale = half_tiles::power_of_two(back[i] / 2);
    const float second_scale = half_tiles::power_of_two(back[i] - back[i] / 2);
    float* const to =
        z.out +
        (static_cast<std::int64_t>(place.part * kFp16x3Points + place.point) * z.rows + row) *
            z.pitch;
#pragma unroll
    for (int j = 0; j < V::kColumns / 8; ++j) {
      const int at = column + 8 * j;
      const float first = sums[4 * j + 2 * i] * first_scale * second_scale;
      const float second = sums[4 * j + 2 * i + 1] * first_scale * second_scale;
      if (z.pitch % 2 == 0) {
        if (at < z.columns) *reinterpret_cast<float2*>(to + at) = make_float2(first, second);
      } else {
        if (at < z.columns) to[at] = first;
        if (at + 1 < z.columns) to[at + 1] = second;
      }
    }
  }
}

#endif

// Kernel: the grid has as many blocks as run at once. Each block computes every gridDim.x-th tile.
template <class V, bool kBOuter>
__global__ __launch_bounds__(V::kThreads,
                             V::kBlocks) void product_kernel(const __grid_constant__ Product z) {
#if defined(CONVSCOPE_MATRIX_STEP)
  namespace step = matrix_step;
  unsigned char* const stages = aligned_shared();
  auto* const full = reinterpret_cast<std::uint64_t*>(stages + V::kStages * V::kStageBytes);
  std::uint64_t* const empty = full + V::kStages;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < V::kStages) {
    tma::start_phases(full + thread, 1);
    tma::start_phases(empty + thread, V::kGroups * 4);
    tma::phases_are_started();
  }
  if (thread == V::kGroups * 128) {
    tma::fetch_map(z.a);
    tma::fetch_map(z.b);
  }
  __syncthreads();
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int first_tile = static_cast<int>(blockIdx.x);
  const int next_tile = static_cast<int>(gridDim.x);
  int stage = 0;
  unsigned parity = 0;
  const auto next_stage = [&] {
    if (++stage == V::kStages) {
      stage = 0;
      parity ^= 1;
    }
  };
  if (thread >= V::kGroups * 128) {
    if (thread % 32 != 0) return;
    for (int i = first_tile; i < z.tiles; i += next_tile) {
      const ProductPlace place = product_place<V>(z, i);
      for (int s = place.begin; s < place.end; ++s) {
        unsigned char* const to = stages + stage * V::kStageBytes;
        tma::wait_phase(empty + stage, parity ^ 1);
        tma::expect(full + stage, V::kStageBytes);
        load_factor<V::kTileRows, false>(to, z.a, full + stage, place.row, s * kDepthStep,
                                         place.point);
        load_factor<V::kTileColumns, kBOuter>(to + 2 * V::kRowsBytes, z.b, full + stage,
                                              place.column, s * kDepthStep, place.point);
        next_stage();
      }
    }
  } else {
    const int group = thread / 128;
    const int to_rows = group % V::kRowGroups * kTileBlockBytes;
    const int to_columns =
        2 * V::kRowsBytes + group / V::kRowGroups * (V::kColumns * kTileRowBytes);
    const bool speaks = thread % 32 == 0;  // the lane that signals for its warp
    const int exponent = *z.exponent;
    for (int i = first_tile; i < z.tiles; i += next_tile) {
      const ProductPlace place = product_place<V>(z, i);
      int back[2];  // the exponents that undo the scales; loaded long before use
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first_row_of<V>(place) + 8 * r;
        back[r] = -exponent;
        if (z.row_exponents != nullptr && row < z.rows) back[r] -= z.row_exponents[row];
      }
      float sums[V::kColumns / 2], fresh[V::kColumns / 2];
#pragma unroll
      for (int j = 0; j < V::kColumns / 2; ++j) sums[j] = fresh[j] = 0;
      for (int chain = place.begin; chain < place.end; chain += kStepsToPromotion) {
        const int end = min(chain + kStepsToPromotion, place.end);
        int used = -1;  // the stage that the previous products read
        for (int s = chain; s < end; ++s) {
          tma::wait_phase(full + stage, parity);
          const unsigned char* const from = stages + stage * V::kStageBytes;
          const step::Place a = step::place<64>(from + to_rows);
          const step::Place b = step::place<64>(from + to_columns);
          const step::Place a_low = a + step::bytes(V::kRowsBytes);
          const step::Place b_low = b + step::bytes(V::kColumnsBytes);
          constexpr int kBStep = kBOuter ? 16 * kTileRowBytes : 32;
          const auto multiply = [&](step::Place rows, step::Place columns, bool add) {
#pragma unroll
            for (int k = 0; k < kDepthStep / 16; ++k) {
              step::multiply<Float16, V::kColumns, false, kBOuter>(
                  fresh, rows + step::bytes(32 * k), columns + step::bytes(kBStep * k),
                  add || k > 0);
            }
          };
          matrix_tile::begin();
          multiply(a_low, b, s != chain);
          multiply(a, b_low, true);
          multiply(a, b, true);
          matrix_tile::commit();
          matrix_tile::wait<1>();
          if (speaks && used >= 0) tma::arrive(empty + used);
          used = stage;
          next_stage();
        }
        matrix_tile::wait<0>();
        matrix_tile::hold(fresh);
        if (speaks) tma::arrive(empty + used);
#pragma unroll
        for (int j = 0; j < V::kColumns / 2; ++j) sums[j] += fresh[j];
      }
      store_product<V>(z, place, back, sums);
    }
  }
#else
  (void)z;
#endif
}

}  // namespace convscope::winograd
