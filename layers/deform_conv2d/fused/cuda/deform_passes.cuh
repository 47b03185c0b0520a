// SPDX-License-Identifier: Apache-2.0
// deform_passes.cuh: the kernels before and after the matrix products of deform_fused_cuda.cu. They
// find the largest magnitudes, pack images and weights into pieces, build the lists for dx, and add
// up partial results.
// Read next  deform_cuda_plan.h; deform_tiles.cuh
#pragma once

#include <cstdint>

#include "layers/deform_conv2d/fused/cuda/deform_sampler.cuh"

namespace convscope::deform_cuda {

// ---- largest finite magnitudes -----------------------------------------------------------------

struct Largest {
  const void* from[2] = {};
  std::int64_t count[2] = {};
  unsigned* to[2] = {};  // bits of an f32, 0 before
};

// Grid: x may have any size, y selects the tensor. The maximum of integers does not depend on the
// order of the blocks.
template <class T>
__global__ __launch_bounds__(kThreads) void largest_kernel(const Largest z) {
  const T* const from = static_cast<const T*>(z.from[blockIdx.y]);
  const std::int64_t count = z.count[blockIdx.y];
  unsigned largest = 0;
  const auto see = [&](T value) {
    const unsigned bits = __float_as_uint(to_float(value)) & 0x7fffffffu;
    if (bits > largest && bits < 0x7f800000u) largest = bits;
  };
  const std::int64_t step = global_threads();
  std::int64_t i = global_thread();
  for (; i + 3 * step < count; i += 4 * step) {
    const T values[4] = {from[i], from[i + step], from[i + 2 * step], from[i + 3 * step]};
#pragma unroll
    for (const T value : values) see(value);
  }
  for (; i < count; i += step) see(from[i]);
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, largest, offset);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x % 32 == 0 && largest > 0) atomicMax(z.to[blockIdx.y], largest);
}

// ---- images of f32 -----------------------------------------------------------------------------

struct PackRows {
  const float* planes = nullptr;  // [N, C, area]
  float* rows = nullptr;          // [N][area][runs][run_pieces][8]
  int channels = 0, area = 0;
  int run = 0, run_pieces = 0, pieces = 0;  // channels and pieces of a run, pieces of a pixel
  FastDivisor by_run_pieces;

  // Returns the first channel of a piece. Sets `left` to how many of its eight channels exist.
  __device__ int channel_of(int piece, int& left) const {
    const int r = by_run_pieces.divide(piece);
    const int within = (piece - r * run_pieces) * kPieceNumbers;
    left = min(kPieceNumbers, run - within);
    return r * run + within;
  }
};

inline constexpr int kPackPixels = 32;

// Grid: x counts blocks of 32 pixels, image after image; y counts groups of eight pieces.
static __global__ __launch_bounds__(kThreads) void pack_rows_kernel(const PackRows z) {
  constexpr int kRow = kStepPieces * kPieceNumbers + 1;
  __shared__ float tile[kPackPixels * kRow];
  const int pixel_blocks = ceil_div(z.area, kPackPixels);
  const int image = static_cast<int>(blockIdx.x) / pixel_blocks;
  const int first_pixel = static_cast<int>(blockIdx.x) % pixel_blocks * kPackPixels;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = static_cast<int>(blockIdx.y) * kStepPieces + warp;
  let_next_kernel_start();
  wait_for_previous_kernel();
  int left = 0;
  const int channel = z.channel_of(piece, left);
  const bool inside = piece < z.pieces && first_pixel + lane < z.area;
  const float* const from = z.planes +
                            (static_cast<std::int64_t>(image) * z.channels + channel) * z.area +
                            first_pixel + lane;
  float values[kPieceNumbers];
#pragma unroll
  for (int i = 0; i < kPieceNumbers; ++i) {
    values[i] = inside && i < left ? from[static_cast<std::int64_t>(i) * z.area] : 0;
  }
#pragma unroll
  for (int i = 0; i < kPieceNumbers; ++i) {
    tile[lane * kRow + warp * kPieceNumbers + i] = values[i];
  }
  __syncthreads();
  constexpr int kQuads = kStepPieces * 2;  // of a pixel
  const int quad = static_cast<int>(threadIdx.x) % kQuads;
  const int to_piece = static_cast<int>(blockIdx.y) * kStepPieces + quad / 2;
  if (to_piece >= z.pieces) return;
#pragma unroll
  for (int i = 0; i < kPackPixels * kQuads / static_cast<int>(kThreads); ++i) {
    const int pixel = static_cast<int>(threadIdx.x) / kQuads + i * (kThreads / kQuads);
    if (first_pixel + pixel >= z.area) return;
    const float* const at = tile + pixel * kRow + quad * 4;
    auto* const to =
        reinterpret_cast<float4*>(z.rows) +
        (static_cast<std::int64_t>(image) * z.area + first_pixel + pixel) * z.pieces * 2 +
        to_piece * 2 + quad % 2;
    *to = make_float4(at[0], at[1], at[2], at[3]);
  }
}

// Unpacks to the type of the problem.
template <class Out>
__global__ __launch_bounds__(kThreads) void unpack_rows_kernel(const PackRows z, Out* planes) {
  constexpr int kRow = kStepPieces * kPieceNumbers + 1;
  __shared__ float tile[kPackPixels * kRow];
  const int pixel_blocks = ceil_div(z.area, kPackPixels);
  const int image = static_cast<int>(blockIdx.x) / pixel_blocks;
  const int first_pixel = static_cast<int>(blockIdx.x) % pixel_blocks * kPackPixels;
  let_next_kernel_start();
  wait_for_previous_kernel();
  constexpr int kQuads = kStepPieces * 2;
  const int quad = static_cast<int>(threadIdx.x) % kQuads;
  const int from_piece = static_cast<int>(blockIdx.y) * kStepPieces + quad / 2;
#pragma unroll
  for (int i = 0; i < kPackPixels * kQuads / static_cast<int>(kThreads); ++i) {
    const int pixel = static_cast<int>(threadIdx.x) / kQuads + i * (kThreads / kQuads);
    if (from_piece >= z.pieces || first_pixel + pixel >= z.area) continue;
    const float4 four = reinterpret_cast<const float4*>(
        z.rows)[(static_cast<std::int64_t>(image) * z.area + first_pixel + pixel) * z.pieces * 2 +
                from_piece * 2 + quad % 2];
    float* const at = tile + pixel * kRow + quad * 4;
    at[0] = four.x;
    at[1] = four.y;
    at[2] = four.z;
    at[3] = four.w;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = static_cast<int>(blockIdx.y) * kStepPieces + warp;
  if (piece >= z.pieces || first_pixel + lane >= z.area) return;
  int left = 0;
  const int channel = z.channel_of(piece, left);
  Out* const to = planes + (static_cast<std::int64_t>(image) * z.channels + channel) * z.area +
                  first_pixel + lane;
#pragma unroll
  for (int i = 0; i < kPieceNumbers; ++i) {
    if (i < left) {
      to[static_cast<std::int64_t>(i) * z.area] =
          from_float<Out>(tile[lane * kRow + warp * kPieceNumbers + i]);
    }
  }
}

// ---- weights -----------------------------------------------------------------------------------

// The matrices into which w is packed:
// forward        a row is an output channel k; the K dimension is (tap, piece of input channels)
// backward_data  a row is an input channel c; the K dimension is (tap, piece of output channels)
struct PackWeights {
  const void* from = nullptr;  // [G k, c, taps]
  uint4* to = nullptr;         // [planes][blocks], see weight_at()
  std::int64_t plane = 0;
  DeformShape sizes;
  int rows = 0;  // of a block, whole tiles
  int blocks = 1, pieces = 0, depth_pieces = 0;
  const unsigned* largest = nullptr;  // of f32
};

// One thread packs one piece. Neighbouring threads read neighbouring elements of w: first along the
// taps, then along the channels c, which are pieces (forward) or rows (backward).
template <class In, int kPlanes, bool kBackward>
__global__ __launch_bounds__(kThreads) void pack_weights_kernel(
    const __grid_constant__ PackWeights z) {
  const DeformShape& s = z.sizes;
  const int tiles = z.rows / kWeightTileRows;
  const int steps = z.depth_pieces / kStepPieces;
  const std::int64_t all = static_cast<std::int64_t>(z.blocks) * z.rows * z.pieces * s.taps;
  let_next_kernel_start();
  wait_for_previous_kernel();
  float scale = 1;
  if constexpr (sizeof(In) == 4) scale = power_of_two(packed_exponent(*z.largest));
  for (std::int64_t i = global_thread(); i < all; i += global_threads()) {
    const auto tap = static_cast<int>(i % s.taps);
    const std::int64_t inner = i / s.taps;
    const int row = static_cast<int>(kBackward ? inner % z.rows : inner / z.pieces % z.rows);
    const int piece = static_cast<int>(kBackward ? inner / z.rows % z.pieces : inner % z.pieces);
    const auto block = static_cast<int>(inner / (static_cast<std::int64_t>(z.rows) * z.pieces));
    // The elements of w in this piece: index of the first one, distance of two, and how many exist.
    std::int64_t first = 0;
    std::int64_t apart = s.taps;
    int left = 0;
    if (kBackward) {
      const int group = s.by_group_runs.divide(block);
      const int channel = (block - group * s.group_runs) * s.run + row;
      const int k = group * s.k + piece * kPieceNumbers;
      first = (static_cast<std::int64_t>(k) * s.c + channel) * s.taps + tap;
      apart = static_cast<std::int64_t>(s.c) * s.taps;
      left = row < s.run ? s.k - piece * kPieceNumbers : 0;
    } else {
      const int run = s.by_run_pieces.divide(piece);
      const int within = (piece - run * s.run_pieces) * kPieceNumbers;
      const std::int64_t k = static_cast<std::int64_t>(block) * s.k + row;
      first = (k * s.c + run * s.run + within) * s.taps + tap;
      left = row < s.k ? s.run - within : 0;
    }
    In values[kPieceNumbers] = {};
#pragma unroll
    for (int j = 0; j < kPieceNumbers; ++j) {
      if (j < left) values[j] = static_cast<const In*>(z.from)[first + j * apart];
    }
    const int at = kBackward ? tap * z.pieces + piece
                             : (piece / s.unit * s.taps + tap) * s.unit + (piece & (s.unit - 1));
    half_tiles::write_piece<In, kPlanes>(values, scale,
                                         z.to + weight_at(block, row, at, tiles, steps), z.plane);
    if (piece + tap > 0) continue;
    for (int behind = s.taps * z.pieces; behind < z.depth_pieces; ++behind) {  // fill up
#pragma unroll
      for (int j = 0; j < kPlanes; ++j) {
        z.to[weight_at(block, row, behind, tiles, steps) + j * z.plane] = make_uint4(0, 0, 0, 0);
      }
    }
  }
}

// ---- the sum of the partial dw -----------------------------------------------------------------

// Adds up the partial results [split][G k][columns] to dw [G k, c, taps]. forward_piece() defines
// the order of the columns.
template <class Out>
__global__ __launch_bounds__(kThreads) void sum_columns_kernel(
    const float* parts, int splits, const __grid_constant__ DeformShape s, int columns,
    bool accumulate, Out* dw) {
  const std::int64_t count = static_cast<std::int64_t>(s.groups) * s.k * columns;
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const std::int64_t row = i / columns;
    const auto column = static_cast<int>(i - row * columns);
    const ForwardPiece at = forward_piece(s, column / kPieceNumbers);
    const int within = at.piece * kPieceNumbers + column % kPieceNumbers;
    if (at.run >= s.group_runs || within >= s.run) continue;
    float sum = 0;
#pragma unroll 16
    for (int split = 0; split < splits; ++split) sum += parts[split * count + i];
    Out& to = dw[(row * s.c + at.run * s.run + within) * s.taps + at.tap];
    to = from_float<Out>(accumulate ? to_float(to) + sum : sum);
  }
}

}  // namespace convscope::deform_cuda
