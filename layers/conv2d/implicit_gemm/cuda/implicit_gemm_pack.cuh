// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_pack.cuh: the kernels before and after the products of implicit_gemm. One kernel
// packs the weights in the order of the reduction, in pieces of 8 fp16/bf16 values (16 bytes). If
// the reduction of dw is split, another kernel adds the partial sums.
// Read next  layers/conv2d/shared/cuda/half_pack.cuh, the other passes; implicit_gemm_tiles.cuh
#pragma once

#include <cstdint>

#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_plan.h"
#include "layers/conv2d/shared/cuda/half_pack.cuh"

namespace convscope::implicit_gemm {

using namespace half_tiles;  // NOLINT(google-build-using-namespace): shared by both folders

struct PackWeights {
  const void* from = nullptr;  // [G K, C, R, S]
  uint4* to = nullptr;         // [planes][phase][group][row][depth_pieces], see piece_at()
  std::int64_t plane = 0;
  int rows = 0, channels = 0;  // rows and channels of a group; forward: K and C, backward: C and K
  int groups = 1, pieces = 0, depth_pieces = 0, kernel_h = 1, kernel_w = 1;
  bool backward = false;
  int phases_h = 1, phases_w = 1;
  Line high[kMaxPhases] = {}, wide[kMaxPhases] = {};
  int2* table = nullptr;  // [phase][depth_pieces], see place_of()
  int pixel_pieces = 0;   // pieces of a pixel of the other operand
  Maxima maxima;
};

// Returns the position of a piece of the reduction: its offset, in pieces, from channel 0 of the
// pixel at tap (0, 0), and the row and column of its tap.
__device__ inline int2 place_of(int index, const Line& high, const Line& wide, int pieces,
                                int pixel_pieces) {
  if (index >= high.taps * wide.taps * pieces) {
    return make_int2(0, 15 | 15 << 8);  // no bit of a mask: outside for every pixel
  }
  const Piece piece = piece_at(index, high.taps, wide.taps, pieces);
  return make_int2(
      (piece.tap_h * high.tap_step * wide.in_size + piece.tap_w * wide.tap_step) * pixel_pieces +
          piece.channel,
      piece.tap_h | piece.tap_w << 8);
}

// Kernel: blockIdx.x selects 32 pieces, blockIdx.y 8 rows, blockIdx.z a phase and a group.
template <class In, int kPlanes, class Half = Float16>
__global__ __launch_bounds__(256) void pack_weights_kernel(const __grid_constant__ PackWeights z) {
  const int group = static_cast<int>(blockIdx.z) % z.groups;
  const int phase = static_cast<int>(blockIdx.z) / z.groups;
  const Line& high = z.high[phase / z.phases_w];
  const Line& wide = z.wide[phase % z.phases_w];
  const int index = static_cast<int>(blockIdx.x * 32 + threadIdx.x / 8);
  const int row = static_cast<int>(blockIdx.y * 8 + threadIdx.x % 8);
  let_next_kernel_start();
  wait_for_previous_kernel();
  float scale = 1;
  if constexpr (sizeof(In) == 4) scale = power_of_two(read_exponent(z.maxima));
  if (index >= z.depth_pieces) return;
  if (row == 0 && group == 0) {
    z.table[phase * z.depth_pieces + index] = place_of(index, high, wide, z.pieces, z.pixel_pieces);
  }
  if (row >= z.rows) return;
  In values[kPieceElements] = {};
  if (index < high.taps * wide.taps * z.pieces) {
    const Piece piece = piece_at(index, high.taps, wide.taps, z.pieces);
    const int tap = high.kernel(piece.tap_h) * z.kernel_w + wide.kernel(piece.tap_w);
#pragma unroll
    for (int i = 0; i < kPieceElements; ++i) {
      const int channel = piece.channel * kPieceElements + i;
      if (channel >= z.channels) continue;
      const std::int64_t filter =
          z.backward ? (static_cast<std::int64_t>(group) * z.channels + channel) * z.rows + row
                     : (static_cast<std::int64_t>(group) * z.rows + row) * z.channels + channel;
      values[i] = static_cast<const In*>(z.from)[filter * z.kernel_h * z.kernel_w + tap];
    }
  }
  uint4* const to =
      z.to +
      ((static_cast<std::int64_t>(phase) * z.groups + group) * z.rows + row) * z.depth_pieces +
      index;
  write_piece<In, kPlanes, Half>(values, scale, to, z.plane);
}

// Packs weights of the forward pass when there are many. A block reads rows of w in memory order,
// where the taps of a channel are adjacent, and transposes them in shared memory. A block takes few
// rows, so that there are many blocks. Fewer weights are packed by pack_weights_kernel, which has
// more blocks.
constexpr int kTransposeThreads = 256;
constexpr int kTransposeRows = 8;
constexpr int kTransposeTaps = 9;                                  // most taps
constexpr int kTransposeChannels =
    kChannelPieces * kPieceElements;  // a block of them, see piece_at()
constexpr std::int64_t kTransposeLeast = 1 << 16;                  // least number of weights

// Kernel: blockIdx.x selects kTransposeChannels channels, blockIdx.y some rows, blockIdx.z a group.
template <class In, int kPlanes, class Half = Float16>
__global__ __launch_bounds__(kTransposeThreads) void transpose_weights_kernel(
    const __grid_constant__ PackWeights z) {
  constexpr int kPitch = kTransposeChannels * kTransposeTaps + 1;  // odd: rows use different banks
  __shared__ In numbers[kTransposeRows * kPitch];             // [row][channel][tap]
  const int thread = static_cast<int>(threadIdx.x);
  const int group = static_cast<int>(blockIdx.z);
  const int first_piece = static_cast<int>(blockIdx.x) * kChannelPieces;
  const int first_channel = first_piece * kPieceElements;
  const int first_row = static_cast<int>(blockIdx.y) * kTransposeRows;
  const int taps = z.kernel_h * z.kernel_w;
  const int rows = min(kTransposeRows, z.rows - first_row);
  const int channels = min(kTransposeChannels, z.channels - first_channel);
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int row = thread / 32; row < rows; row += kTransposeThreads / 32) {
    const In* const from =
        static_cast<const In*>(z.from) +
        ((static_cast<std::int64_t>(group) * z.rows + first_row + row) * z.channels +
         first_channel) *
            taps;
#pragma unroll 4
    for (int i = thread % 32; i < channels * taps; i += 32) numbers[row * kPitch + i] = from[i];
  }
  float scale = 1;
  if constexpr (sizeof(In) == 4) scale = power_of_two(read_exponent(z.maxima));
  __syncthreads();
  const int width = min(kChannelPieces, z.pieces - first_piece);  // pieces of a tap in this block
  // After the last channels the row is filled with zeros.
  const int begin = first_piece * taps;
  const int end = first_piece + width == z.pieces ? z.depth_pieces : begin + width * taps;
  const int count = end - begin;
  if (blockIdx.y == 0 && group == 0) {
    for (int i = thread; i < count; i += kTransposeThreads) {
      z.table[begin + i] = place_of(begin + i, z.high[0], z.wide[0], z.pieces, z.pixel_pieces);
    }
  }
  uint4* const to =
      z.to + (static_cast<std::int64_t>(group) * z.rows + first_row) * z.depth_pieces + begin;
  for (int i = thread; i < rows * count; i += kTransposeThreads) {
    const int row = i / count;
    const int index = i - row * count;
    const int tap = index / width;
    const int channel = (index - tap * width) * kPieceElements;
    In values[kPieceElements] = {};
    if (tap < taps) {
#pragma unroll
      for (int c = 0; c < kPieceElements; ++c) {
        if (channel + c < channels) {
          values[c] = numbers[row * kPitch + (channel + c) * taps + tap];
        }
      }
    }
    write_piece<In, kPlanes, Half>(values, scale, to + row * z.depth_pieces + index, z.plane);
  }
}

// Sums dw [G K, C, taps] from parts [split][G K][columns]. Columns are in the order of piece_at().
template <class Out>
__global__ void sum_weight_parts_kernel(const float* parts, int splits, std::int64_t rows,
                                        int columns, int channels, int pieces, int taps_h,
                                        int taps_w, bool accumulate, Out* dw) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const std::int64_t count = rows * columns;
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const std::int64_t row = i / columns;
    const int column = static_cast<int>(i - row * columns);
    const Piece piece = piece_at(column / kPieceElements, taps_h, taps_w, pieces);
    const int channel = piece.channel * kPieceElements + column % kPieceElements;
    if (channel >= channels) continue;
    float sum = 0;
#pragma unroll 16
    for (int split = 0; split < splits; ++split) sum += parts[split * count + i];
    Out& to = dw[((row * channels + channel) * taps_h + piece.tap_h) * taps_w + piece.tap_w];
    to = from_float<Out>(accumulate ? to_float(to) + sum : sum);
  }
}

}  // namespace convscope::implicit_gemm
