// SPDX-License-Identifier: Apache-2.0
// deform_tiles.cuh: the three matrix products of deform_fused_cuda.cu, whose header explains the
// idea. Each kernel keeps a tile of accumulators in registers and multiplies step by step
// (sum_steps in half_steps.cuh). The kernels differ in the code that fills shared memory.
//
//   gather_kernel   y and dx: a sampler makes a row of the tile's columns
//   weight_kernel   dw: samples and dy have the K dimension (pixels of y) outermost
//   place_kernel    doffset, dmask: dense tiles of the samples' gradient, multiplied by the corners
//                   of x while they are in registers
// Read next  deform_sampler.cuh; layers/conv2d/shared/cuda/half_steps.cuh
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "layers/conv2d/shared/cuda/gather_lines.h"
#include "layers/deform_conv2d/fused/cuda/deform_sampler.cuh"

namespace convscope::deform_cuda {

using gather::part_begin;
using half_tiles::Finish;
using half_tiles::store_tile;
using half_tiles::sum_steps;

// A tile of a product: the types of its operands, its sizes, and the layout of shared memory, which
// has a table of places after the stages.
template <class By_, int kRowGroups, int kColumnGroups, int kColumns, int kStages, int kBlocks,
          int kDeep_ = 1>
struct Tile
    : half_tiles::Variant<typename By_::Half, float, By_::kTerms, kRowGroups, kColumnGroups,
                          kColumns, kStages, kBlocks, (kStages >= 3 && By_::kTerms == 1) ? 1 : 0> {
  using By = By_;
  using Base =
      half_tiles::Variant<typename By_::Half, float, By_::kTerms, kRowGroups, kColumnGroups,
                          kColumns, kStages, kBlocks, (kStages >= 3 && By_::kTerms == 1) ? 1 : 0>;
  static constexpr int kDeep = kDeep_;
  static constexpr int kStepBytes = Base::kStageBytes;
  static constexpr int kStageBytes = kDeep * kStepBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;
  static constexpr int kTableAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kTableAt + PlaceTable<Base::kTileColumns>::kBytes;
  static constexpr int kSampledBytes =  // dynamic shared memory of kernels with samplers
      kSharedBytes + PlaceTable<Base::kTileColumns>::kBytes + 64;
};

// ---- y and dx ----------------------------------------------------------------------------------

// The rows of the product are channels of the output, the columns are pixels of the output.
template <class View>
struct Gather {
  View view;
  DeformShape sizes;
  Scaling scaling;
  const uint4* weights = nullptr;  // prepared, [planes][blocks], see weight_at()
  std::int64_t weights_plane = 0;
  void* out = nullptr;     // [N, blocks rows, out_area]
  float* parts = nullptr;  // [splits] of the same, when splits > 1
  std::int64_t out_count = 0;
  Finish end;
  int rows = 0;  // channels of a block: of y in a group, or of x in a run
  int blocks = 1;
  int depth_pieces = 0, splits = 1;
  int images = 0, out_area = 0;
  bool in_f32 = true;   // the output; else in 16 bits
  bool paired = false;  // pixels 2i and 2i + 1 are adjacent in y; 2i is aligned for a pair
  FastDivisor by_row_tiles, by_out_area;
};

// Grid: x counts all row tiles of one pixel tile, then those of the next; y counts blocks of rows,
// z splits.
template <class V, class View>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void gather_kernel(
    const __grid_constant__ Gather<View> z) {
  using By = typename V::By;
  unsigned char* const stages = aligned_shared();
  const int thread = static_cast<int>(threadIdx.x);
  const int pixel_tile = z.by_row_tiles.divide(static_cast<int>(blockIdx.x));
  const int first_row =
      (static_cast<int>(blockIdx.x) - pixel_tile * z.by_row_tiles.d) * V::kTileRows;
  const int first_pixel = pixel_tile * V::kTileColumns;
  const int block = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  const int all = z.depth_pieces / kStepPieces;  // steps of 64 elements of the K dimension
  const int first_stage = part_begin(all / V::kDeep, split, z.splits);
  const int steps = part_begin(all / V::kDeep, split + 1, z.splits) - first_stage;
  const int first_step = first_stage * V::kDeep;
  const int pixels = z.images * z.out_area;

  constexpr int kRowStep = V::kThreads / kStepPieces;
  constexpr int kSampled = V::kTileColumns / kRowStep;  // rows of a thread
  const int piece = thread % kStepPieces;
  const int row = thread / kStepPieces;
  // Prepared weights have the layout of shared memory: one thread copies whole tiles, or (before
  // sm_90) each thread a piece of each tile. Tiles after the last row are neither read nor stored.
  const int tiles = ceil_div(z.rows, kWeightTileRows);
  const int first_tile = first_row / kWeightTileRows;
  const uint4* const weights =
      z.weights + ((static_cast<std::int64_t>(block) * tiles + first_tile) * all + first_step) *
                      kWeightTilePieces;
  auto* const barriers = reinterpret_cast<std::uint64_t*>(stages + V::kBarriersAt);
  if (kBulkCopies && thread == 0) {
    for (int i = 0; i < V::kStages; ++i) start_barrier(barriers + i);
  }
  // No barrier is needed here: the sampler's constructor begins with a barrier of the block.
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Scales scales = scales_of(z.scaling);
  auto sampler = [&] {
    const int first_piece = first_step * kStepPieces + piece;
    if constexpr (std::is_same_v<View, PlaceView>) {
      return Sampler<By, kSampled, V::kTileColumns, false>(
          z.view, z.sizes, stages + V::kTableAt, block, first_piece, row, first_pixel, scales.row);
    } else {
      return ListSampler<By, kSampled>(z.view, z.sizes, block, first_pixel + row, kRowStep,
                                       first_piece, scales.row);
    }
  }();
  const auto load = [&](int step, unsigned char* stage) {  // called for step 0, 1, 2, ...
    const uint4* const from = weights + step * V::kDeep * kWeightTilePieces;
    if constexpr (kBulkCopies) {
      if (thread == 0) {
        std::uint64_t* const barrier = barriers + step % V::kStages;
        const int own_tiles = min(V::kRowGroups, tiles - first_tile);
        expect_bytes(barrier,
                     static_cast<unsigned>(own_tiles * V::kDeep * V::kPlanes * kTileBlockBytes));
        for (int i = 0; i < own_tiles; ++i) {
          const uint4* const tile = from + static_cast<std::int64_t>(i) * all * kWeightTilePieces;
          for (int deep = 0; deep < V::kDeep; ++deep) {
            for (int j = 0; j < V::kPlanes; ++j) {
              bulk_copy(stage + deep * V::kStepBytes + j * V::kRowsBytes + i * kTileBlockBytes,
                        tile + deep * kWeightTilePieces + j * z.weights_plane, kTileBlockBytes,
                        barrier);
            }
          }
        }
      }
    }
#pragma unroll
    for (int deep = 0; deep < V::kDeep; ++deep) {
      unsigned char* const to = stage + deep * V::kStepBytes;
#pragma unroll
      for (int i = 0; !kBulkCopies && i < V::kTileRows / kRowStep; ++i) {
        constexpr int kCopies = kWeightTilePieces / V::kThreads;  // of a tile
        const bool valid = first_tile + i / kCopies < tiles;
        const std::int64_t at =
            (static_cast<std::int64_t>(i / kCopies) * all + deep) * kWeightTilePieces +
            i % kCopies * V::kThreads + thread;
#pragma unroll
        for (int j = 0; j < V::kPlanes; ++j) {
          async_copy<16, false>(to + j * V::kRowsBytes + (thread + i * V::kThreads) * 16,
                                valid ? from + at + j * z.weights_plane : z.weights, valid);
        }
      }
      sampler.step(to + V::kPlanes * V::kRowsBytes + swizzle_tile(row, piece),
                   kRowStep * kTileRowBytes, V::kColumnsBytes);
    }
  };
  const auto arrived = [&](int step) {
    if constexpr (kBulkCopies) {
      wait_for_bytes(barriers + step % V::kStages, static_cast<unsigned>(step / V::kStages) & 1u);
    }
  };
  float sums[V::kSums];
  sum_steps<V, false>(sums, stages, steps, load, arrived);

  int* const out_at = reinterpret_cast<int*>(stages);
  const int first_image = z.by_out_area.divide(first_pixel);
  const int out_channels = z.blocks * z.rows;
  for (int i = thread; i < V::kTileColumns; i += V::kThreads) {
    const int pixel = first_pixel + i;
    const int image = z.by_out_area.divide(pixel);
    out_at[i] = pixel >= pixels ? -1
                                : (image - first_image) * out_channels * z.out_area +
                                      (pixel - image * z.out_area);
  }
  __syncthreads();
  const int warp_group = thread / 128;
  const int tile_row =
      first_row + warp_group % V::kRowGroups * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
  const int left = z.rows - tile_row;
  if (left <= 0) return;
  const int channel = block * z.rows + tile_row;
  const int* const at = out_at + warp_group / V::kRowGroups * V::kColumns + thread % 4 * 2;
  const std::int64_t image_at = static_cast<std::int64_t>(first_image) * out_channels * z.out_area;
  const auto store = [&](auto* out, const Finish& end) {
    z.paired ? store_tile<V, true>(sums, out, at, image_at, z.out_area, channel, left,
                                   scales.unscale, end)
             : store_tile<V, false>(sums, out, at, image_at, z.out_area, channel, left,
                                    scales.unscale, end);
  };
  if (z.splits > 1) {
    store(z.parts + split * z.out_count, Finish{});
  } else if (z.in_f32) {
    store(static_cast<float*>(z.out), z.end);
  } else if constexpr (By::kTerms == 1) {
    store(static_cast<typename By::Half*>(z.out), z.end);
  }
}

// ---- dw ----------------------------------------------------------------------------------------

struct WeightGather {
  PlaceView view;
  DeformShape sizes;
  Scaling scaling;                // `weights`: of dy
  const uint4* errors = nullptr;  // dy in 16 bits, [planes][N P Q][G][out_pieces]
  std::int64_t errors_plane = 0;
  float* parts = nullptr;  // [splits][G][k][columns]
  int columns = 0;         // pieces of a row, padded to whole steps
  int splits = 1;
  FastDivisor by_row_tiles;
};

// Grid: x counts all row tiles of one column tile, then those of the next; y counts groups, z
// splits.
template <class V>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void weight_kernel(
    const __grid_constant__ WeightGather z) {
  using By = typename V::By;
  static_assert(V::kTileColumns == 64);
  unsigned char* const stages = aligned_shared();
  const DeformShape& s = z.sizes;
  const int thread = static_cast<int>(threadIdx.x);
  const int column_tile = z.by_row_tiles.divide(static_cast<int>(blockIdx.x));
  const int first_row =
      (static_cast<int>(blockIdx.x) - column_tile * z.by_row_tiles.d) * V::kTileRows;
  const int group = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  constexpr int kDepth = V::kDeep * kTileDepth;  // of a stage
  const int all = ceil_div(s.out_pixels(), kDepth);
  const int first_step = part_begin(all, split, z.splits);
  const int steps = part_begin(all, split + 1, z.splits) - first_step;

  constexpr int kRowPieces = V::kTileRows / kPieceNumbers;
  constexpr int kErrorStep = V::kThreads / kRowPieces;  // rows of the K dimension
  const int row_piece = thread % kRowPieces;
  const int error_depth = thread / kRowPieces;
  const bool row_valid = first_row / kPieceNumbers + row_piece < s.out_pieces;
  const int from_row = group * s.out_pieces + first_row / kPieceNumbers + row_piece;
  constexpr int kRowStep = V::kThreads / kStepPieces;
  constexpr int kSampled = kTileDepth / kRowStep;
  const int piece = thread % kStepPieces;
  const int row = thread / kStepPieces;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Scales scales = scales_of(z.scaling);
  Sampler<By, kSampled, kTileDepth, true> sampler(z.view, s, stages + V::kTableAt, group,
                                                  column_tile * kStepPieces + piece, row,
                                                  first_step * kDepth, scales.row);
  const auto load = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int deep = 0; deep < V::kDeep; ++deep) {
      unsigned char* const to_step = stage + deep * V::kStepBytes;
      const int first_pixel = (first_step + step) * kDepth + deep * kTileDepth;
#pragma unroll
      for (int i = 0; i < kTileDepth / kErrorStep; ++i) {
        const int depth = error_depth + i * kErrorStep;
        const bool valid = row_valid && first_pixel + depth < s.out_pixels();
        const uint4* const at =
            z.errors +
            (valid ? static_cast<std::int64_t>(first_pixel + depth) * s.y_pieces() + from_row : 0);
        unsigned char* const to =
            to_step + row_piece / 8 * kTileBlockBytes + swizzle_tile(depth, row_piece % 8);
#pragma unroll
        for (int j = 0; j < V::kPlanes; ++j) {
          async_copy<16, false>(to + j * V::kRowsBytes, at + j * z.errors_plane, valid);
        }
      }
      sampler.step(to_step + V::kPlanes * V::kRowsBytes + swizzle_tile(row, piece),
                   kRowStep * kTileRowBytes, V::kColumnsBytes);
    }
  };
  float sums[V::kSums];
  sum_steps<V, true>(sums, stages, steps, load);

  const int warp_group = thread / 128;
  const int columns = z.columns * kPieceNumbers;
  const int to_column = column_tile * 64 + thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int to_row =
        first_row + warp_group * 64 + thread % 128 / 32 * 16 + thread % 32 / 4 + 8 * i;
    if (to_row >= s.k) continue;
    float* const to =
        z.parts + ((static_cast<std::int64_t>(split) * s.groups + group) * s.k + to_row) * columns;
#pragma unroll
    for (int j = 0; j < V::kColumns / 8; ++j) {
      *reinterpret_cast<float2*>(to + to_column + 8 * j) =
          make_float2(sums[4 * j + 2 * i] * scales.unscale.x * scales.unscale.y,
                      sums[4 * j + 2 * i + 1] * scales.unscale.x * scales.unscale.y);
    }
  }
}

// ---- doffset, dmask, and dx by atomic additions ------------------------------------------------

struct PlaceGradient {
  Places places;
  DeformShape sizes;
  const void* rows = nullptr;        // x, packed
  const unsigned* x_max = nullptr;   // the maximum that scales the rows; null: no scale
  const unsigned* dy_max = nullptr;  // scales dy and the weights; null: no scale
  const unsigned* w_max = nullptr;
  const uint4* errors = nullptr;  // dy in 16 bits, [planes][N P Q][G][out_pieces]
  std::int64_t errors_plane = 0;
  const uint4* weights = nullptr;  // prepared for backward_data, [planes][runs]
  std::int64_t weights_plane = 0;
  int depth_pieces = 0;
  void* doffset = nullptr;  // each may be null
  void* dmask = nullptr;
  float* dx = nullptr;  // [N][H W][x_pieces][8], accumulated; null: dx is computed elsewhere
};

__device__ inline void add_four(float* to, float a, float b, float c, float d) {
#if !defined(CONVSCOPE_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4*>(to), make_float4(a, b, c, d));
#else
  atomicAdd(to, a);
  atomicAdd(to + 1, b);
  atomicAdd(to + 2, c);
  atomicAdd(to + 3, d);
#endif
}

// Returns the column of a tile that holds its channel i. The four threads of a pixel have 2 of
// every 8 columns each, so channels are permuted to give each thread kColumns / 4 neighbouring
// channels.
template <int kColumns>
__device__ inline int channel_of_column(int column) {
  constexpr int kOwn = kColumns / 4;
  return column % 8 / 2 * kOwn + column / 8 * 2 + column % 2;
}

// Grid: x counts tiles of pixels of y, y counts keys. The rows are pixels of y, the columns are
// channels of x. A thread block loops over the tiles of columns, so that one thread sees all
// channels of a place.
template <class V>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void place_kernel(
    const __grid_constant__ PlaceGradient z) {
  using By = typename V::By;
  using Half = typename By::Half;
  using Row = typename By::Row;
  static_assert(V::kColumnGroups == 1);
  unsigned char* const stages = aligned_shared();
  const DeformShape& s = z.sizes;
  const int thread = static_cast<int>(threadIdx.x);
  const int first_pixel = static_cast<int>(blockIdx.x) * V::kTileRows;
  const int key = static_cast<int>(blockIdx.y);
  const int offset_group = key / s.taps;
  const int tap = key - offset_group * s.taps;
  constexpr int kRowStep = V::kThreads / kStepPieces;
  const int piece = thread % kStepPieces;
  const int row = thread / kStepPieces;
  // The pixels whose accumulators this thread has.
  const int own_row = first_pixel + thread / 32 * 16 + thread % 32 / 4;
  let_next_kernel_start();
  wait_for_previous_kernel();
  OutPixel pixel[2];
  Place place[2];
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pixel[i] = out_pixel(s, own_row + 8 * i);
    const Offset offset = read_offset<Half>(z.places, s, pixel[i], key);
    place[i] = place_of(s, pixel[i], tap, offset);
    factor[i] = offset.factor;
  }
  float2 unscale = make_float2(1, 1);
  float x_unscale = 1;
  if (z.dy_max != nullptr) {
    unscale = two_powers(-(packed_exponent(*z.dy_max) + packed_exponent(*z.w_max)));
  }
  if (z.x_max != nullptr) x_unscale = power_of_two(-packed_exponent(*z.x_max));

  float products[2][4] = {};  // sums over all channels: gradient times corner pixel
  const int steps = ceil_div(s.out_pieces, kStepPieces);
  const int tiles = ceil_div(s.run, kWeightTileRows);
  for (int run = offset_group * s.offset_runs; run < (offset_group + 1) * s.offset_runs; ++run) {
    const int group = s.by_group_runs.divide(run);
    for (int first = 0; first < s.run; first += V::kTileColumns) {
      const auto load = [&](int step, unsigned char* stage) {
        unsigned char* const to = stage + swizzle_tile(row, piece);
        const bool inside = step * kStepPieces + piece < s.out_pieces;
#pragma unroll
        for (int i = 0; i < V::kTileRows / kRowStep; ++i) {
          const int at_pixel = first_pixel + row + i * kRowStep;
          const bool valid = inside && at_pixel < s.out_pixels();
          const uint4* const at =
              z.errors + (valid ? static_cast<std::int64_t>(at_pixel) * s.y_pieces() +
                                      group * s.out_pieces + step * kStepPieces + piece
                                : 0);
#pragma unroll
          for (int j = 0; j < V::kPlanes; ++j) {
            async_copy<16>(to + j * V::kRowsBytes + i * kRowStep * kTileRowBytes,
                           at + j * z.errors_plane, valid);
          }
        }
#pragma unroll
        for (int i = 0; i < V::kTileColumns / kRowStep; ++i) {
          const int channel = first + channel_of_column<V::kColumns>(row + i * kRowStep);
          const bool valid = inside && channel < s.run;
          const uint4* const at =
              z.weights +
              (valid ? weight_at(run, channel, tap * s.out_pieces + step * kStepPieces + piece,
                                 tiles, z.depth_pieces / kStepPieces)
                     : 0);
#pragma unroll
          for (int j = 0; j < V::kPlanes; ++j) {
            async_copy<16>(to + V::kPlanes * V::kRowsBytes + j * V::kColumnsBytes +
                               i * kRowStep * kTileRowBytes,
                           at + j * z.weights_plane, valid);
          }
        }
      };
      float sums[V::kSums];
      sum_steps<V, false>(sums, stages, steps, load);

      // The kColumns / 4 channels of the tile that belong to this thread.
      constexpr int kOwn = V::kColumns / 32;  // pieces
      const int own = first / kPieceNumbers + thread % 4 * kOwn;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          const bool there = place[i].pixel[corner] >= 0;
          const std::int64_t from =
              static_cast<std::int64_t>(there ? place[i].pixel[corner] : 0) * s.x_pieces() +
              run * s.run_pieces + own;
#pragma unroll
          for (int j = 0; j < kOwn; ++j) {
            const bool inside = there && own + j < s.run_pieces;
            float x[kPieceNumbers] = {};
            add_piece<Row>(x, 1.0f, inside ? read_piece<Row>(z.rows, from + j) : RowPiece<Row>{});
#pragma unroll
            for (int c = 0; c < kPieceNumbers; ++c) {
              const float gradient = sums[4 * (4 * j + c / 2) + 2 * i + c % 2];
              products[i][corner] = fmaf(inside ? gradient : 0.0f, x[c], products[i][corner]);
            }
          }
        }
      }
      if (z.dx == nullptr) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          if (place[i].pixel[corner] < 0) continue;
          const float weight = place[i].weight(corner) * factor[i] * unscale.x;
          float* const to =
              z.dx + (static_cast<std::int64_t>(place[i].pixel[corner]) * s.x_pieces() +
                      run * s.run_pieces + own) *
                         kPieceNumbers;
#pragma unroll
          for (int j = 0; j < kOwn; ++j) {
            if (own + j >= s.run_pieces) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int at = 4 * (4 * j + 2 * half) + 2 * i;
              add_four(to + j * kPieceNumbers + 4 * half, sums[at] * weight * unscale.y,
                       sums[at + 1] * weight * unscale.y, sums[at + 4] * weight * unscale.y,
                       sums[at + 5] * weight * unscale.y);
            }
          }
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {  // the four threads of a pixel
      float& sum = products[i][corner];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      sum = sum * x_unscale * unscale.x * unscale.y;
    }
    if (pixel[i].image < 0 || thread % 4 != 0) continue;
    const float down = place[i].down, right = place[i].right;
    float by_v = 0, by_u = 0, by_mask = 0;
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
      if (place[i].pixel[corner] < 0) continue;
      const float sum = products[i][corner];
      by_mask = fmaf(place[i].weight(corner), sum, by_mask);
      by_v = fmaf(corner % 2 == 1 ? right : 1 - right, corner / 2 == 1 ? sum : -sum, by_v);
      by_u = fmaf(corner / 2 == 1 ? down : 1 - down, corner % 2 == 1 ? sum : -sum, by_u);
    }
    const std::int64_t at = static_cast<std::int64_t>(pixel[i].image) * s.keys() + key;
    const std::int64_t area = s.out_area();
    const auto write = [&](void* to, std::int64_t i_to, float value) {
      if (to == nullptr) return;
      if (z.places.in_f32) {
        static_cast<float*>(to)[i_to] = value;
      } else {
        static_cast<Half*>(to)[i_to] = from_float<Half>(value);
      }
    };
    write(z.doffset, 2 * at * area + pixel[i].at, by_v * factor[i]);
    write(z.doffset, (2 * at + 1) * area + pixel[i].at, by_u * factor[i]);
    write(z.dmask, at * area + pixel[i].at, by_mask);
  }
}

// ---- compiled kernels, by type of operands ------------------------------------------------------

struct Instance {
  int rows, columns;  // of a block's tile
  int deep;           // steps of 64 elements of the K dimension in a stage
  unsigned threads;
  std::size_t shared_bytes, sampled_bytes;  // without and with the table of a sampler
  int blocks;                               // on one SM
  // Null where this tile has no such kernel.
  void (*y)(const Gather<PlaceView>) = nullptr;
  void (*dx)(const Gather<ListView>) = nullptr;
  void (*dw)(const WeightGather) = nullptr;
  void (*places)(const PlaceGradient) = nullptr;  // doffset, dmask
};

// A tile, and the kernels that it is compiled for:
//   Kernels<Tile<ByF32, 4, 1, 64, 2, 1>>().y().dx().instance
template <class V>
struct Kernels {
  Instance instance{V::kTileRows,    V::kTileColumns,  V::kDeep,  V::kThreads,
                    V::kSharedBytes, V::kSampledBytes, V::kBlocks};

  Kernels& y() {
    instance.y = gather_kernel<V, PlaceView>;
    return *this;
  }
  Kernels& dx() {
    instance.dx = gather_kernel<V, ListView>;
    return *this;
  }
  Kernels& dw() {
    instance.dw = weight_kernel<V>;
    return *this;
  }
  Kernels& places() {
    instance.places = place_kernel<V>;
    return *this;
  }
};

std::span<const Instance> f32_instances();  // three products of fp16
std::span<const Instance> f16_instances();  // f16, and f32 as TF32
std::span<const Instance> bf16_instances();

}  // namespace convscope::deform_cuda
