// SPDX-License-Identifier: Apache-2.0
// blocked_tiles.h: the parts of direct and pointwise convolution in the blocked layout that depend
// on the instruction set: register tiles that read and write blocks of 16 channels where they lie
// (layers/dispatch/activation_layout.h).
//
// `in` is x forward and dy in backward_data, `out` is y or dx. A line is the pixels of one row of
// `out` whose neighbours in `out` read neighbours in `in`.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// One (r, s) of the kernel. Pixels [first, end) of the tile find it inside the image.
struct BlockedTap {
  std::int64_t in;  // where pixel 0 reads, in floats
  std::int64_t w;
  int first, end;
};

// out[j out_step + lane(k)] = start[k] + residual + sum (if relu, at least 0 and at most `most`);
// the sum is that of
//   w[d w_block + w_t + c width + k] in[d in_block + in_t + j in_step + c in_channel]
// over blocks d < depth, taps t with j in [first, end) and channels c < 16, in the last block
// c < last; for pixels j < pixels, channels k < width and lane(k) = k / 16 out_block + k % 16.
// in_channel is 1 where `in` is blocked, and the floats of a plane where it lies [C,H,W].
struct BlockedTile {
  int pixels = 0;
  int taps = 0;
  const BlockedTap* tap = nullptr;
  std::int64_t depth = 0;
  int last = 16;
  const float* in = nullptr;
  std::int64_t in_block = 0, in_step = 0, in_channel = 1;
  const float* w = nullptr;
  std::int64_t w_block = 0;
  const float* start = nullptr;  // [starts], the channels behind start from 0; null: all
  int starts = 0;
  float* out = nullptr;
  std::int64_t out_block = 0, out_step = 0;
  const float* residual = nullptr;  // as `out`, or null
  bool relu = false;
  float most = 0;  // of relu; infinity: no bound
};

// A row of sums of backward_weight: where its channel begins in `in`, and where it stands in
// `sums`.
struct BlockedWeightRow {
  std::int64_t in, sums;
};

// sums[c sums_row + k] += sum over p < rows, q < columns of
//                           in[p in_row + q in_step + c] dy[p dy_row + q 16 + lane(k)]
// for channels c < channels <= 16 and lanes k < width, with lane(k) = k / 16 dy_block + k % 16.
// With `row`, channel c and its sums begin at row[c] instead of c and c sums_row.
struct BlockedWeightTile {
  int channels = 0;
  const BlockedWeightRow* row = nullptr;
  std::int64_t rows = 0, columns = 0;
  const float* in = nullptr;
  std::int64_t in_row = 0, in_step = 0;
  const float* dy = nullptr;
  std::int64_t dy_row = 0, dy_block = 0;
  float* sums = nullptr;
  std::int64_t sums_row = 0;
};

struct BlockedKernels {
  int lanes = 0;   // of a vector
  int pixels = 0;  // most pixels of a tile of one or two vectors; half of it of four
  // width: 1, 2 or 4 vectors of channels. Up to 16 channels of a tile lie in one block; more begin
  // with a block.
  void (*tile)(const BlockedTile& tile, int width) = nullptr;
  void (*weight_tile)(const BlockedWeightTile& tile, int width) = nullptr;  // 1 or 2 vectors
};

extern IsaTable<BlockedKernels> blocked_kernels;

}  // namespace convscope
