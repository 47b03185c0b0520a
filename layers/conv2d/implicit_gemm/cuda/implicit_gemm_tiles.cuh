// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tiles.cuh: the two kernels of implicit_gemm_cuda.cu, whose header explains the
// idea. In each step both kernels copy 64 reduction indices into shared memory, asynchronously and
// several steps ahead, and multiply them with matrix_tile.cuh. A piece is 8 values, 16 bytes.
// Read next  implicit_gemm_plan.h; layers/conv2d/shared/cuda/half_steps.cuh
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_pack.cuh"
#include "layers/conv2d/shared/cuda/half_steps.cuh"

namespace convscope::implicit_gemm {

// ---- forward and backward_data -----------------------------------------------------------------

struct Gather {
  const uint4* weights = nullptr;  // PackWeights::to
  std::int64_t weights_plane = 0;
  const uint4* pixels = nullptr;  // PackPixels::to
  std::int64_t pixels_plane = 0;
  void* out = nullptr;     // [N, G rows, out_area], or [N, out_area, lanes]
  float* parts = nullptr;  // [splits] arrays shaped like `out`, when splits > 1
  std::int64_t out_count = 0;
  const int2* table = nullptr;      // PackWeights::table
  const float2* unscale = nullptr;  // null: the sums are not scaled
  Finish end;
  int images = 0, groups = 1, rows = 0;          // rows: of a group
  int pieces = 0, depth_pieces = 0, splits = 1;  // pieces of a group's pixel, of a weight row
  int out_width = 0, out_area = 0;
  int lanes = 0;        // channels of an output pixel in NHWC; 0: NCHW
  bool paired = false;  // output pixels 2i and 2i + 1 are adjacent and aligned as a pair
  // If true, the blocks of all phases of a tile run at the same time. Each phase writes only some
  // elements of a memory sector, and L2 combines these writes even where it cannot hold all of y.
  bool phases_first = false;
  int phases_w = 1;
  FastDivisor by_row_tiles, by_phases_w, by_groups;
  Line high[kMaxPhases] = {}, wide[kMaxPhases] = {};
};

// Kernel: blockIdx.x selects a row tile inside a pixel tile, blockIdx.y a group inside a phase,
// blockIdx.z a split. With phases_first, x and y are exchanged.
template <class V>
__global__ __launch_bounds__(V::kThreads,
                             V::kBlocks) void gather_kernel(const __grid_constant__ Gather z) {
  unsigned char* const stages = aligned_shared();
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(z.phases_first ? blockIdx.y : blockIdx.x);
  const int pixel_tile = z.by_row_tiles.divide(tile);
  const int first_row = (tile - pixel_tile * ceil_div(z.rows, V::kTileRows)) * V::kTileRows;
  const int first_pixel = pixel_tile * V::kTileColumns;
  const int phase_group = static_cast<int>(z.phases_first ? blockIdx.x : blockIdx.y);
  const int phase = z.by_groups.divide(phase_group);
  const int group = phase_group - phase * z.groups;
  const int phase_h = z.by_phases_w.divide(phase);
  const Line& high = z.high[phase_h];
  const Line& wide = z.wide[phase - phase_h * z.phases_w];
  const int pixels = z.images * high.outputs * wide.outputs;
  if (first_pixel >= pixels) return;
  const int blocks = blocks_of(high.taps, wide.taps, z.pieces);
  const int split = static_cast<int>(blockIdx.z);
  const int first_block = z.splits == 1 ? 0 : part_begin(blocks, split, z.splits);
  const int steps = z.splits == 1 ? blocks : part_begin(blocks, split + 1, z.splits) - first_block;

  // Each thread copies one piece of every kRowStep-th row, in both tiles.
  constexpr int kRowStep = V::kThreads / kBlockPieces;
  const int pixel_pieces = z.groups * z.pieces;
  const int piece = thread % kBlockPieces;
  const int row = thread / kBlockPieces;
  int from[V::kTileColumns / kRowStep];
  unsigned inside[V::kTileColumns / kRowStep];
#pragma unroll
  for (int i = 0; i < V::kTileColumns / kRowStep; ++i) {
    const int pixel = first_pixel + row + i * kRowStep;
    const int line = wide.by_outputs.divide(pixel);
    const int image = high.by_outputs.divide(line);
    const int w = pixel - line * wide.outputs;
    const int h = line - image * high.outputs;
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
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float2 scale = z.unscale == nullptr ? make_float2(1, 1) : *z.unscale;
  const int2* const table = z.table + phase * z.depth_pieces + first_block * kBlockPieces + piece;
  int2 next_place = steps > 0 ? table[0] : make_int2(0, 0);

  const auto load = [&](int step, unsigned char* stage) {  // called for steps 0, 1, 2, ...
    unsigned char* const to = stage + swizzle_tile(row, piece);
    const int2 place = next_place;
    if (step + 1 < steps) next_place = table[(step + 1) * kBlockPieces];
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
#pragma unroll
    for (int i = 0; i < V::kTileColumns / kRowStep; ++i) {
      const bool valid =
          (inside[i] >> (place.y & 15) & inside[i] >> (16 + (place.y >> 8)) & 1u) != 0;
      const uint4* const at = z.pixels + (valid ? from[i] + place.x : 0);
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

  int* const out_at = reinterpret_cast<int*>(stages);
  const int first_image = high.by_outputs.divide(wide.by_outputs.divide(first_pixel));
  const int out_channels = z.lanes > 0 ? 1 : z.groups * z.rows;
  for (int i = thread; i < V::kTileColumns; i += V::kThreads) {
    const int pixel = first_pixel + i;
    const int line = wide.by_outputs.divide(pixel);
    const int image = high.by_outputs.divide(line);
    out_at[i] = pixel >= pixels ? -1
                                : (image - first_image) * out_channels * z.out_area +
                                      high.output(line - image * high.outputs) * z.out_width +
                                      wide.output(pixel - line * wide.outputs);
  }
  __syncthreads();
  if (z.lanes > 0) {
    float* const transposed = reinterpret_cast<float*>(out_at + V::kTileColumns);
    return store_nhwc<V>(
        sums, out_at, transposed,
        {.out = z.out,
         .parts = z.splits > 1 ? z.parts + split * z.out_count : nullptr,
         .lanes = z.lanes,
         .channel = group * z.rows + first_row,
         .rows_left = z.rows - first_row,
         .first_pixel = static_cast<std::int64_t>(first_image) * z.out_area},
        z.end, scale);
  }
  const int warp_group = thread / 128;
  const int tile_row =
      first_row + warp_group % V::kRowGroups * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
  const int left = z.rows - tile_row;
  const int channel = group * z.rows + tile_row;
  const int* const at = out_at + warp_group / V::kRowGroups * V::kColumns + thread % 4 * 2;
  const std::int64_t image_at = static_cast<std::int64_t>(first_image) * out_channels * z.out_area;
  if (left <= 0) return;
  using Out = typename V::Out;
  if (z.splits > 1) {
    float* const out = z.parts + split * z.out_count;
    z.paired ? store_tile<V, true>(sums, out, at, image_at, z.out_area, channel, left, scale, {})
             : store_tile<V, false>(sums, out, at, image_at, z.out_area, channel, left, scale, {});
  } else {
    Out* const out = static_cast<Out*>(z.out);
    z.paired
        ? store_tile<V, true>(sums, out, at, image_at, z.out_area, channel, left, scale, z.end)
        : store_tile<V, false>(sums, out, at, image_at, z.out_area, channel, left, scale, z.end);
  }
}

// ---- backward_weight ---------------------------------------------------------------------------

struct WeightGather {
  const uint4* errors = nullptr;  // dy: PackPixels::to
  std::int64_t errors_plane = 0;
  const uint4* pixels = nullptr;  // x: PackPixels::to
  std::int64_t pixels_plane = 0;
  float* parts = nullptr;  // [splits][groups][rows][columns]
  const float2* unscale = nullptr;
  int steps = 0, columns = 0;
  FastDivisor by_row_tiles;
  int images = 0, groups = 1, rows = 0, row_pieces = 0, pieces = 0, splits = 1;
  Line high, wide;  // lines of the forward pass
};

// A row of the reduction: an output pixel, and the input pixel that its tap (0, 0) reads.
struct DepthRow {
  int from;
  short h, w;
};
__device__ inline DepthRow depth_row(const WeightGather& z, int pixel) {
  const int line = z.wide.by_outputs.divide(pixel);
  const int image = z.high.by_outputs.divide(line);
  if (image >= z.images) return {0, -32768, -32768};
  const int h = z.high.input(line - image * z.high.outputs, 0);
  const int w = z.wide.input(pixel - line * z.wide.outputs, 0);
  return {((image * z.high.in_size + h) * z.wide.in_size + w) * z.groups * z.pieces,
          static_cast<short>(h), static_cast<short>(w)};
}

// Kernel: blockIdx.x selects a row tile inside a column tile, blockIdx.y a group, z a split.
template <class V>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void weight_kernel(
    const __grid_constant__ WeightGather z) {
  unsigned char* const stages = aligned_shared();
  // The reduction rows of the step that is copied next, and of the step after that.
  DepthRow* const depth_rows = reinterpret_cast<DepthRow*>(stages + V::kStages * V::kStageBytes);
  constexpr int kRing = V::kStages + 1;
  const int thread = static_cast<int>(threadIdx.x);
  const int column_tile = z.by_row_tiles.divide(static_cast<int>(blockIdx.x));
  const int first_row =
      (static_cast<int>(blockIdx.x) - column_tile * ceil_div(z.rows, V::kTileRows)) * V::kTileRows;
  const int first_column = column_tile * V::kTileColumns;
  const int group = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  const int first_step = part_begin(z.steps, split, z.splits);
  const int steps = part_begin(z.steps, split + 1, z.splits) - first_step;
  const int pixels = z.images * z.high.outputs * z.wide.outputs;

  // A thread copies one column of 16-byte pieces of each tile. Its next piece is kRowStep rows of
  // the reduction further in the row tile, and kColumnStep rows further in the column tile.
  constexpr int kRowPieces = V::kTileRows / kPieceElements;
  constexpr int kColumnPieces = V::kTileColumns / kPieceElements;
  constexpr int kRowStep = V::kThreads / kRowPieces;
  constexpr int kColumnStep = V::kThreads / kColumnPieces;
  const int row_piece = thread % kRowPieces;
  const int row_depth = thread / kRowPieces;
  const bool row_valid = first_row / kPieceElements + row_piece < z.row_pieces;
  const int errors_pieces = z.groups * z.row_pieces;
  const int from_row = group * z.row_pieces + first_row / kPieceElements + row_piece;
  const int column_piece = thread % kColumnPieces;
  const int column_depth = thread / kColumnPieces;
  const int column = first_column / kPieceElements + column_piece;  // in pieces
  const bool column_valid = column * kPieceElements < z.columns;
  const Piece tap = column_valid ? piece_at(column, z.high.taps, z.wide.taps, z.pieces) : Piece{};
  const int tap_h = tap.tap_h * z.high.tap_step;
  const int tap_w = tap.tap_w * z.wide.tap_step;
  const int from_column =
      (tap_h * z.wide.in_size + tap_w) * z.groups * z.pieces + group * z.pieces + tap.channel;
  let_next_kernel_start();
  for (int i = thread; i < V::kStages * kBlockDepth; i += V::kThreads) {
    depth_rows[i] = depth_row(z, first_step * kBlockDepth + i);
  }
  __syncthreads();
  wait_for_previous_kernel();
  const float2 scale = z.unscale == nullptr ? make_float2(1, 1) : *z.unscale;

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
    // Computes the pixels of the rows of the next step. Threads load them after the next barrier.
    if (step >= V::kStages - 1 && thread < kBlockDepth) {
      depth_rows[(step + 1) % kRing * kBlockDepth + thread] =
          depth_row(z, first_pixel + kBlockDepth + thread);
    }
  };
  float sums[V::kSums];
  sum_steps<V, true>(sums, stages, steps, load);

  const int warp_group = thread / 128;
  const int to_column = first_column + warp_group / V::kRowGroups * V::kColumns + thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int to_row = first_row + warp_group % V::kRowGroups * 64 + thread % 128 / 32 * 16 +
                       thread % 32 / 4 + 8 * i;
    if (to_row >= z.rows) continue;
    float* const to =
        z.parts +
        ((static_cast<std::int64_t>(split) * z.groups + group) * z.rows + to_row) * z.columns;
#pragma unroll
    for (int j = 0; j < V::kColumns / 8; ++j) {
      if (to_column + 8 * j >= z.columns) continue;
      *reinterpret_cast<float2*>(to + to_column + 8 * j) = make_float2(
          sums[4 * j + 2 * i] * scale.x * scale.y, sums[4 * j + 2 * i + 1] * scale.x * scale.y);
    }
  }
}

// ---- compiled kernels, by operand type ----------------------------------------------------------

inline constexpr std::size_t kMaxStages = 5;

struct Instance {
  int rows, columns;  // of a block's tile
  unsigned threads;
  std::size_t shared_bytes;  // of the gather kernel; backward_weight adds rows of the reduction
  int blocks;                // blocks that share an SM
  void (*gather)(const Gather);
  void (*weight)(const WeightGather);  // null: the tile's columns do not divide the threads

  std::size_t weight_bytes() const {
    return shared_bytes + (kMaxStages + 1) * kBlockDepth * sizeof(DepthRow);
  }
};

template <class V>
inline Instance instance() {
  Instance out{V::kTileRows, V::kTileColumns,  V::kThreads, V::kSharedBytes,
               V::kBlocks,   gather_kernel<V>, nullptr};
  if constexpr (V::kThreads % (V::kTileColumns / kPieceElements) == 0)
    out.weight = weight_kernel<V>;
  return out;
}

std::span<const Instance> f32_instances();   // three fp16 products
std::span<const Instance> tf32_instances();  // one fp16 product with 10 bits of mantissa
std::span<const Instance> f16_instances();
std::span<const Instance> bf16_instances();

}  // namespace convscope::implicit_gemm
