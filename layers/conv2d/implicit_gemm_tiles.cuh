// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tiles.cuh: the two kernels of implicit_gemm_cuda.cu, whose header tells the idea.
// Both bring 64 halves of depth a step into shared memory with asynchronous copies, several steps
// ahead, and multiply them with matrix_tile.cuh.
#pragma once

#include <cstdint>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/matrix_tile.cuh"
#include "layers/conv2d/implicit_gemm_pack.cuh"

namespace convscope::implicit_gemm {

// A block: kRowGroups x kColumnGroups warp groups, each with 64 rows and kColumns columns of sums.
// kTerms 1: halves as they are. 3: high and low halves, low high + high low + high high.
template <class Half_, class Out_, int kTerms_, int kRowGroups_, int kColumnGroups_, int kColumns_,
          int kStages_, int kBlocks_>
struct Variant {
  using Half = Half_;
  using Out = Out_;
  static constexpr int kTerms = kTerms_;
  static constexpr int kPlanes = kTerms == 3 ? 2 : 1;
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kColumnGroups = kColumnGroups_;
  static constexpr int kColumns = kColumns_;  // of a warp group
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // that share a multiprocessor
  static constexpr int kThreads = 128 * kRowGroups * kColumnGroups;
  static constexpr int kTileRows = 64 * kRowGroups;
  static constexpr int kTileColumns = kColumns * kColumnGroups;
  static constexpr int kSums = kColumns / 2;                          // of a thread
  static constexpr int kRowsBytes = kTileRows * kTileRowBytes;        // of a plane
  static constexpr int kColumnsBytes = kTileColumns * kTileRowBytes;  // of a plane
  static constexpr int kStageBytes = kPlanes * (kRowsBytes + kColumnsBytes);
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // and to align; no tables
};

// With three terms the unit's sums, rounded towards zero at each addition, start from zero again
// after this many steps, and what they were is added to the sums in registers, rounded to nearest.
inline constexpr int kStepsToPromotion = 2;

// sums = the product of `steps` steps. load(step, stage) starts the copies of one step.
template <class V, bool kDepthOuter, class Load>
__device__ inline void sum_steps(float (&sums)[V::kSums], unsigned char* stages, int steps,
                                 const Load& load) {
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int from_rows = group % V::kRowGroups * kTileBlockBytes;
  const int from_columns =
      V::kPlanes * V::kRowsBytes + group / V::kRowGroups * (V::kColumns * kTileRowBytes);
#pragma unroll
  for (int i = 0; i < V::kSums; ++i) sums[i] = 0;
  [[maybe_unused]] float fresh[V::kSums];
  if constexpr (V::kTerms == 3) {
#pragma unroll
    for (int i = 0; i < V::kSums; ++i) fresh[i] = 0;
  }
#pragma unroll
  for (int i = 0; i < V::kStages - 1; ++i) {
    if (i < steps) load(i, stages + i * V::kStageBytes);
    async_copy_commit();
  }
  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    async_copy_wait<V::kStages - 2>();
    order_shared_writes_for_matrix_unit();
    __syncthreads();  // the step is there, and nobody reads the one before any more
    const unsigned char* const rows = stages + stage * V::kStageBytes + from_rows;
    const unsigned char* const columns = stages + stage * V::kStageBytes + from_columns;
    using Half = typename V::Half;
    matrix_tile::begin();
    if constexpr (V::kTerms == 1) {
      matrix_tile::hold(sums);
      matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(sums, rows, columns, true);
    } else {
      matrix_tile::hold(fresh);
      const unsigned char* const rows_low = rows + V::kRowsBytes;
      const unsigned char* const columns_low = columns + V::kColumnsBytes;
      matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(fresh, rows_low, columns,
                                                            step % kStepsToPromotion != 0);
      matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(fresh, rows, columns_low, true);
      matrix_tile::multiply<Half, V::kColumns, kDepthOuter>(fresh, rows, columns, true);
    }
    matrix_tile::commit();
    const int ahead = stage == 0 ? V::kStages - 1 : stage - 1;
    if (step + V::kStages - 1 < steps) {
      load(step + V::kStages - 1, stages + ahead * V::kStageBytes);
    }
    async_copy_commit();
    matrix_tile::wait<0>();
    if constexpr (V::kTerms == 1) {
      matrix_tile::hold(sums);
    } else {
      matrix_tile::hold(fresh);
      if (step % kStepsToPromotion == kStepsToPromotion - 1 || step == steps - 1) {
#pragma unroll
        for (int i = 0; i < V::kSums; ++i) sums[i] += fresh[i];
      }
    }
    stage = stage == V::kStages - 1 ? 0 : stage + 1;
  }
  async_copy_wait<0>();
  __syncthreads();  // the stages may serve for other things
}

// Shared memory of the block, 1024-aligned.
__device__ inline unsigned char* aligned_shared() {
  auto* const shared = dynamic_shared<unsigned char>();
  const auto address = reinterpret_cast<std::uintptr_t>(shared);
  return shared + (1024 - address % 1024) % 1024;
}

// Scales of the sums: 2^-(a + b), in two factors because it may lie beyond the range of one.
struct Unscale {
  float first = 1, second = 1;
};
__device__ inline Unscale unscale(const Maxima& a, const Maxima& b) {
  if (a.bits == nullptr) return {};
  const int exponent = -(read_exponent(a) + read_exponent(b));
  return {power_of_two(exponent / 2), power_of_two(exponent - exponent / 2)};
}

// ---- forward and backward_data -----------------------------------------------------------------

struct Gather {
  const uint4* weights = nullptr;  // PackWeights::to
  std::int64_t weights_plane = 0;
  const uint4* pixels = nullptr;  // PackPixels::to
  std::int64_t pixels_plane = 0;
  void* out = nullptr;     // [N, G rows, out_area]
  float* parts = nullptr;  // [splits] of the same, when splits > 1
  std::int64_t out_count = 0;
  Maxima maxima, other_maxima;  // of the two factors
  Finish end;
  int images = 0, groups = 1, rows = 0;          // rows of a group
  int pieces = 0, depth_pieces = 0, splits = 1;  // pieces of a group's pixel, of a row of weights
  int out_width = 0, out_area = 0;
  int phases_w = 1;
  Line high[kMostPhases] = {}, wide[kMostPhases] = {};
};

template <class Out>
__device__ inline void store_two(Out* to, float first, float second, bool together) {
  if (together && (reinterpret_cast<std::uintptr_t>(to) & (2 * sizeof(Out) - 1)) == 0) {
    if constexpr (sizeof(Out) == 4) {
      *reinterpret_cast<float2*>(to) = make_float2(first, second);
    } else {
      const unsigned low = from_float<Out>(first).bits;
      const unsigned high = from_float<Out>(second).bits;
      *reinterpret_cast<unsigned*>(to) = low | high << 16;
    }
  } else {
    to[0] = from_float<Out>(first);
  }
}

// Block (x: row tiles inside pixel tiles, y: group, z: split inside phase).
template <class V>
__global__ __launch_bounds__(V::kThreads,
                             V::kBlocks) void gather_kernel(const __grid_constant__ Gather z) {
  unsigned char* const stages = aligned_shared();
  int2* const table = reinterpret_cast<int2*>(stages + V::kStages * V::kStageBytes);
  const int thread = static_cast<int>(threadIdx.x);
  const int row_tiles = ceil_div(z.rows, V::kTileRows);
  const int first_row = static_cast<int>(blockIdx.x) % row_tiles * V::kTileRows;
  const int first_pixel = static_cast<int>(blockIdx.x) / row_tiles * V::kTileColumns;
  const int group = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z) % z.splits;
  const int phase = static_cast<int>(blockIdx.z) / z.splits;
  const Line& high = z.high[phase / z.phases_w];
  const Line& wide = z.wide[phase % z.phases_w];
  const int plane = high.outputs * wide.outputs;  // pixels of an image in this phase
  const int pixels = z.images * plane;
  if (first_pixel >= pixels) return;
  const int blocks = blocks_of(high.taps, wide.taps, z.pieces);
  const int first_block = part_begin(blocks, split, z.splits);
  const int steps = part_begin(blocks, split + 1, z.splits) - first_block;

  // Where each piece of the depth lies, relative to tap (0, 0) and channel 0 of a pixel.
  const int pixel_pieces = z.groups * z.pieces;
  for (int i = thread; i < steps * kBlockPieces; i += V::kThreads) {
    const int index = first_block * kBlockPieces + i;
    int2 entry = make_int2(0, 15 | 15 << 8);  // no bit of a mask: outside everywhere
    if (index < high.taps * wide.taps * z.pieces) {
      const Piece piece = piece_at(index, high.taps, wide.taps, z.pieces);
      entry.x = (piece.tap_h * high.tap_step * wide.in_size + piece.tap_w * wide.tap_step) *
                    pixel_pieces +
                piece.channel;
      entry.y = piece.tap_h | piece.tap_w << 8;
    }
    table[i] = entry;
  }

  // Each thread copies one piece of every kRowStep-th row of both tiles.
  constexpr int kRowStep = V::kThreads / kBlockPieces;
  const int piece = thread % kBlockPieces;
  const int row = thread / kBlockPieces;
  int from[V::kTileColumns / kRowStep];
  unsigned inside[V::kTileColumns / kRowStep];
#pragma unroll
  for (int i = 0; i < V::kTileColumns / kRowStep; ++i) {
    const int pixel = first_pixel + row + i * kRowStep;
    const int image = pixel / plane;
    const int h = pixel % plane / wide.outputs;
    const int w = pixel % wide.outputs;
    from[i] = ((image * high.in_size + high.input(h, 0)) * wide.in_size + wide.input(w, 0)) *
                  pixel_pieces +
              group * z.pieces;
    inside[i] = pixel < pixels ? high.inside(h) | wide.inside(w) << 16 : 0;
  }
  const uint4* const weights =
      z.weights +
      ((static_cast<std::int64_t>(phase) * z.groups + group) * z.rows + first_row + row) *
          z.depth_pieces +
      first_block * kBlockPieces + piece;
  const int rows_left = z.rows - first_row - row;
  const Unscale scale = unscale(z.maxima, z.other_maxima);
  __syncthreads();  // the table

  const auto load = [&](int step, unsigned char* stage) {
    unsigned char* const to = stage + swizzle_tile(row, piece);
#pragma unroll
    for (int i = 0; i < V::kTileRows / kRowStep; ++i) {
      const bool valid = i * kRowStep < rows_left;
      const uint4* const at = valid ? weights +
                                          static_cast<std::int64_t>(i) * kRowStep * z.depth_pieces +
                                          step * kBlockPieces
                                    : z.weights;
#pragma unroll
      for (int j = 0; j < V::kPlanes; ++j) {
        async_copy<16, false>(to + j * V::kRowsBytes + i * kRowStep * kTileRowBytes,
                              at + j * z.weights_plane, valid);
      }
    }
    const int2 entry = table[step * kBlockPieces + piece];
#pragma unroll
    for (int i = 0; i < V::kTileColumns / kRowStep; ++i) {
      const bool valid =
          (inside[i] >> (entry.y & 15) & inside[i] >> (16 + (entry.y >> 8)) & 1u) != 0;
      const uint4* const at = z.pixels + (valid ? from[i] + entry.x : 0);
#pragma unroll
      for (int j = 0; j < V::kPlanes; ++j) {
        async_copy<16>(
            to + V::kPlanes * V::kRowsBytes + j * V::kColumnsBytes + i * kRowStep * kTileRowBytes,
            at + j * z.pixels_plane, valid);
      }
    }
  };
  float sums[V::kSums];
  sum_steps<V, false>(sums, stages, steps, load);

  // Where each pixel of the tile goes, relative to the first image of the tile.
  int* const out_at = reinterpret_cast<int*>(stages);
  const int first_image = first_pixel / plane;
  for (int i = thread; i < V::kTileColumns; i += V::kThreads) {
    const int pixel = first_pixel + i;
    const int h = pixel % plane / wide.outputs;
    const int w = pixel % wide.outputs;
    out_at[i] = pixel >= pixels ? -1
                                : (pixel / plane - first_image) * z.groups * z.rows * z.out_area +
                                      high.output(h) * z.out_width + wide.output(w);
  }
  __syncthreads();
  const int warp_group = thread / 128;
  const int column = warp_group / V::kRowGroups * V::kColumns + thread % 4 * 2;
  const std::int64_t image_at =
      static_cast<std::int64_t>(first_image) * z.groups * z.rows * z.out_area;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int tile_row = first_row + warp_group % V::kRowGroups * 64 + thread % 128 / 32 * 16 +
                         thread % 32 / 4 + 8 * i;
    if (tile_row >= z.rows) continue;
    const int channel = group * z.rows + tile_row;
    const std::int64_t row_at = image_at + static_cast<std::int64_t>(channel) * z.out_area;
#pragma unroll
    for (int j = 0; j < V::kColumns / 8; ++j) {
      const int2 at = *reinterpret_cast<const int2*>(out_at + column + 8 * j);
      const float first = sums[4 * j + 2 * i] * scale.first * scale.second;
      const float second = sums[4 * j + 2 * i + 1] * scale.first * scale.second;
      if (at.x < 0) continue;
      const bool together = at.y == at.x + 1;
      if (z.splits > 1) {
        float* const to = z.parts + split * z.out_count + row_at;
        store_two<float>(to + at.x, first, second, together);
        if (at.y >= 0 && !(together && (reinterpret_cast<std::uintptr_t>(to + at.x) & 7) == 0)) {
          to[at.y] = second;
        }
      } else {
        using Out = typename V::Out;
        Out* const to = static_cast<Out*>(z.out) + row_at;
        const float y0 = finish<Out>(z.end, first, channel, row_at + at.x);
        const float y1 = at.y >= 0 ? finish<Out>(z.end, second, channel, row_at + at.y) : 0;
        store_two<Out>(to + at.x, y0, y1, together);
        if (at.y >= 0 && !(together && (reinterpret_cast<std::uintptr_t>(to + at.x) &
                                        (2 * sizeof(Out) - 1)) == 0)) {
          to[at.y] = from_float<Out>(y1);
        }
      }
    }
  }
}

// ---- backward_weight ---------------------------------------------------------------------------

struct WeightGather {
  const uint4* errors = nullptr;  // dy: PackPixels::to
  std::int64_t errors_plane = 0;
  const uint4* pixels = nullptr;  // x: PackPixels::to
  std::int64_t pixels_plane = 0;
  float* parts = nullptr;       // [splits][groups][rows][columns]
  Maxima maxima, other_maxima;  // of the two factors
  int images = 0, groups = 1, rows = 0, row_pieces = 0, pieces = 0, splits = 1;
  Line high, wide;  // forward

  __host__ __device__ int columns() const { return high.taps * wide.taps * pieces * kPieceHalves; }
  __host__ __device__ int steps() const {
    return ceil_div(images * high.outputs * wide.outputs, kBlockDepth);
  }
};

// A row of the depth: an output pixel, and the input pixel under its tap (0, 0).
struct DepthRow {
  int from;
  short h, w;
};
__device__ inline DepthRow depth_row(const WeightGather& z, int pixel) {
  const int plane = z.high.outputs * z.wide.outputs;
  const int image = pixel / plane;
  if (image >= z.images) return {0, -32768, -32768};
  const int h = z.high.input(pixel % plane / z.wide.outputs, 0);
  const int w = z.wide.input(pixel % z.wide.outputs, 0);
  return {((image * z.high.in_size + h) * z.wide.in_size + w) * z.groups * z.pieces,
          static_cast<short>(h), static_cast<short>(w)};
}

// Block (x: row tiles inside column tiles, y: group, z: split).
template <class V>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void weight_kernel(
    const __grid_constant__ WeightGather z) {
  unsigned char* const stages = aligned_shared();
  // The rows of the step that is copied next, and of the one behind it.
  DepthRow* const depth_rows = reinterpret_cast<DepthRow*>(stages + V::kStages * V::kStageBytes);
  constexpr int kRing = V::kStages + 1;
  const int thread = static_cast<int>(threadIdx.x);
  const int row_tiles = ceil_div(z.rows, V::kTileRows);
  const int first_row = static_cast<int>(blockIdx.x) % row_tiles * V::kTileRows;
  const int first_column = static_cast<int>(blockIdx.x) / row_tiles * V::kTileColumns;
  const int group = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  const int first_step = part_begin(z.steps(), split, z.splits);
  const int steps = part_begin(z.steps(), split + 1, z.splits) - first_step;
  const int pixels = z.images * z.high.outputs * z.wide.outputs;

  // Each thread copies one piece of every so-manieth depth of both tiles.
  constexpr int kRowPieces = V::kTileRows / kPieceHalves;
  constexpr int kColumnPieces = V::kTileColumns / kPieceHalves;
  constexpr int kRowStep = V::kThreads / kRowPieces;
  constexpr int kColumnStep = V::kThreads / kColumnPieces;
  const int row_piece = thread % kRowPieces;
  const int row_depth = thread / kRowPieces;
  const bool row_valid = first_row / kPieceHalves + row_piece < z.row_pieces;
  const int errors_pieces = z.groups * z.row_pieces;
  const int from_row = group * z.row_pieces + first_row / kPieceHalves + row_piece;
  const int column_piece = thread % kColumnPieces;
  const int column_depth = thread / kColumnPieces;
  const int column = first_column / kPieceHalves + column_piece;  // in pieces
  const int tap = column / z.pieces;
  const bool column_valid = tap < z.high.taps * z.wide.taps;
  const int tap_h = tap / z.wide.taps * z.high.tap_step;
  const int tap_w = tap % z.wide.taps * z.wide.tap_step;
  const int from_column =
      (tap_h * z.wide.in_size + tap_w) * z.groups * z.pieces + group * z.pieces + column % z.pieces;
  const Unscale scale = unscale(z.maxima, z.other_maxima);
  for (int i = thread; i < V::kStages * kBlockDepth; i += V::kThreads) {
    depth_rows[i] = depth_row(z, first_step * kBlockDepth + i);
  }
  __syncthreads();

  const auto load = [&](int step, unsigned char* stage) {
    const int first_pixel = (first_step + step) * kBlockDepth;
#pragma unroll
    for (int i = 0; i < kBlockDepth / kRowStep; ++i) {
      const int depth = row_depth + i * kRowStep;
      const bool valid = row_valid && first_pixel + depth < pixels;
      const uint4* const at =
          z.errors +
          (valid ? static_cast<std::int64_t>(first_pixel + depth) * errors_pieces + from_row : 0);
      unsigned char* const to =
          stage + row_piece / 8 * kTileBlockBytes + swizzle_tile(depth, row_piece % 8);
#pragma unroll
      for (int j = 0; j < V::kPlanes; ++j) {
        async_copy<16, false>(to + j * V::kRowsBytes, at + j * z.errors_plane, valid);
      }
    }
    const DepthRow* const rows = depth_rows + step % kRing * kBlockDepth;
#pragma unroll
    for (int i = 0; i < kBlockDepth / kColumnStep; ++i) {
      const int depth = column_depth + i * kColumnStep;
      const DepthRow at_row = rows[depth];
      const bool valid =
          column_valid &&
          static_cast<unsigned>(at_row.h + tap_h) < static_cast<unsigned>(z.high.in_size) &&
          static_cast<unsigned>(at_row.w + tap_w) < static_cast<unsigned>(z.wide.in_size);
      const uint4* const at = z.pixels + (valid ? at_row.from + from_column : 0);
      unsigned char* const to = stage + V::kPlanes * V::kRowsBytes +
                                column_piece / 8 * kTileBlockBytes +
                                swizzle_tile(depth, column_piece % 8);
#pragma unroll
      for (int j = 0; j < V::kPlanes; ++j) {
        async_copy<16>(to + j * V::kColumnsBytes, at + j * z.pixels_plane, valid);
      }
    }
    // The rows of the next step, for the load behind the next barrier.
    if (step >= V::kStages - 1 && thread < kBlockDepth) {
      depth_rows[(step + 1) % kRing * kBlockDepth + thread] =
          depth_row(z, first_pixel + kBlockDepth + thread);
    }
  };
  float sums[V::kSums];
  sum_steps<V, true>(sums, stages, steps, load);

  const int warp_group = thread / 128;
  const int columns = z.columns();
  const int to_column = first_column + warp_group / V::kRowGroups * V::kColumns + thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int to_row = first_row + warp_group % V::kRowGroups * 64 + thread % 128 / 32 * 16 +
                       thread % 32 / 4 + 8 * i;
    if (to_row >= z.rows) continue;
    float* const to =
        z.parts +
        ((static_cast<std::int64_t>(split) * z.groups + group) * z.rows + to_row) * columns;
#pragma unroll
    for (int j = 0; j < V::kColumns / 8; ++j) {
      if (to_column + 8 * j >= columns) continue;
      *reinterpret_cast<float2*>(to + to_column + 8 * j) =
          make_float2(sums[4 * j + 2 * i] * scale.first * scale.second,
                      sums[4 * j + 2 * i + 1] * scale.first * scale.second);
    }
  }
}

}  // namespace convscope::implicit_gemm
