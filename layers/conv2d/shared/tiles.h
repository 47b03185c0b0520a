// SPDX-License-Identifier: Apache-2.0
// tiles.h: the parts of direct and pointwise convolution that depend on the instruction set:
// register tiles that read pixels in place, and the copies that put zeros around an image or
// channels into the lanes.
//
// A reduction channel is a channel that a sum runs over: c in forward, k in backward_data. A tap is
// one (r, s) of the kernel. It has an offset in a row of pixels and an offset in the weights.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

inline constexpr int kLineFloats = 16;  // of a cache line

// out[i * out_row + j] = start[i] + sum over d < `depth`, t < taps of
//                        w[d w_step + w_at[t] + i] x[d x_step + x_at[t] + j]
// for channels i < channels and pixels j < pixels.
struct SumTile {
  int channels = 0;
  int pixels = 0;
  std::int64_t depth = 0;
  int taps = 0;
  const std::int32_t* x_at = nullptr;
  const std::int32_t* w_at = nullptr;
  const float* x = nullptr;
  std::int64_t x_step = 0;
  const float* w = nullptr;
  std::int64_t w_step = 0;
  const float* start = nullptr;  // [channels], or null: 0
  float* out = nullptr;
  std::int64_t out_row = 0;
  // While a channel tile computes, it prefetches weights that are needed soon: `ahead_lines` cache
  // lines from ahead[d ahead_step] on.
  const float* ahead = nullptr;
  std::int64_t ahead_step = 0;
  int ahead_lines = 0;
};

// sums[t][k] += sum over p < rows, q < columns of
//                        x[t][p x_row + q x_step] dy[(p columns + q) width + k]
// for taps t < taps and lanes k < width, the width of one vector or of two.
struct WeightTile {
  int taps = 0;
  int width = 0;
  std::int64_t rows = 0, columns = 0;
  const float* const* x = nullptr;
  std::int64_t x_row = 0, x_step = 1;
  const float* dy = nullptr;
  float* const* sums = nullptr;
};

// Copies rows of one image with zeros around them: for channels c < channels and rows h < rows
//   to[c to_step + h to_row + phase phase_step + i] = from[c from_step + h width + i phases + phase
//   - left], or 0 outside [0, width), for i < columns.
struct RowCopy {
  std::int64_t channels = 0, rows = 0, width = 0, from_step = 0;
  std::int64_t phases = 1, left = 0, columns = 0;
  std::int64_t to_step = 0, to_row = 0, phase_step = 0;
};

// A run of neighbouring pixels of every plane: from[c from_step + run.from + i step] goes to
// to[c to_step + run.to + i], for i < run.count.
struct PixelRun {
  std::int64_t from = 0, to = 0, count = 0;
};

struct TileKernels {
  int lanes = 0;   // of a vector
  int pixels = 0;  // most pixels of a channel_tile
  int rows = 0;    // most channels of a pixel_tile
  // Channels in the lanes: w is packed `width` wide (1, 2 or 4 vectors; 4 for at most half of
  // `pixels`), pixels are broadcast, and the tile is transposed when it is stored.
  void (*channel_tile)(const SumTile& tile, int width) = nullptr;
  // Pixels in the lanes (at most 2 vectors; 4 with at most 6 channels); weights are broadcast.
  void (*pixel_tile)(const SumTile& tile) = nullptr;
  void (*weight_tile)(const WeightTile& tile) = nullptr;
  void (*copy)(const RowCopy& copy, const float* from, float* to) = nullptr;
  // Copies `count` runs of each of `channels` planes. A step of 1 is fastest, then a step of 2.
  void (*copy_runs)(const float* from, std::int64_t from_step, std::int64_t channels,
                    const PixelRun* runs, std::int64_t count, std::int64_t step, float* to,
                    std::int64_t to_step) = nullptr;
  // Same as channels_to_lanes() below; null where no separate kernel exists.
  void (*to_lanes)(const float* from, std::int64_t from_row, std::int64_t channels,
                   std::int64_t count, std::int64_t width, float* to) = nullptr;
  // Interleaves `step` rows: to[i] = from[i % step * from_step + i / step] for i < width.
  void (*weave)(const float* from, std::int64_t from_step, std::int64_t width, std::int64_t step,
                float* to) = nullptr;
};

extern IsaTable<TileKernels> tile_kernels;

// Copies to[j * width + k] = from[k * from_row + j] for k < channels <= width and j < count; lanes
// after `channels` become 0. width: one vector or two; `to` is aligned to 64 bytes.
void channels_to_lanes(const float* from, std::int64_t from_row, std::int64_t channels,
                       std::int64_t count, std::int64_t width, float* to);

}  // namespace convscope
