// SPDX-License-Identifier: Apache-2.0
// int8_tiles.h: the parts of convolution on int8 values that depend on the instruction set: tiles
// of exact 32-bit accumulators, and the epilogue from accumulators to y.
//
// x holds bytes, 0..255. A line is a run of pixels of y in which neighbours read neighbouring
// pixels of x.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Epilogue from sums to y for output channel k, with the residual r, if there is one:
//   real = exact_scale[k] sum + exact_shift[k] + exact_residual_scale r
//   codes:   y = min(max(round(real), low), high), rounded half to even, in double
//   floats:  y = min(max(scale[k] sum + shift[k] + residual_scale r, least), most)
// Codes are computed in f32 first, in units of 2^-16. Half of `unsure` bounds the error of f32:
//   fixed = scale[k] sum + shift[k] + residual_scale r
//         = 2^16 (real + bias + 1/2) + unsure / 2, wrong by less than unsure / 2
// The high half of `fixed` is round(real) + bias, if the low half is above `unsure`. The low half
// is the distance to the next smaller code. Lanes with a smaller low half, one in ten thousand, are
// computed in double.
struct Int8Outputs {
  bool codes = true;
  const float *scale = nullptr, *shift = nullptr;
  const double *exact_scale = nullptr, *exact_shift = nullptr;
  std::int32_t low = 0, high = 255;  // both in the range of u8, or both of i8
  std::int32_t bias = 0;             // 255 - high: high + bias is the largest byte
  std::int32_t unsure = 0;           // 65535: all lanes are computed in double
  float least = 0, most = 0;
  enum class Residual : std::uint8_t { none, codes, signed_codes, floats };
  Residual residual_type = Residual::none;
  float residual_scale = 0, residual_sure = 0;  // with a larger |r| (floats) all lanes use double
  double exact_residual_scale = 0;
};

// A run of contiguous bytes of x that all sums of a tile read: a tap (r,s) of the kernel, or a row
// of the kernel. For pixels [first, end) of the tile the run is inside the image.
struct Int8Tap {
  std::int64_t in;  // offset in bytes of the run of pixel 0
  std::int64_t w;   // offset in bytes of its weights
  std::int16_t first, end;
};

// Computes sum[j, k] = start[k] + sum of w[d w_block + w_t + 4 lanes q + 4 k + i]
//                                         x[d in_block + in_t + j in_step + 4 q + i]
// over blocks d < `depth`, taps t with j in [first, end), quads q < quads (in the last block q <
// last_quads) and i < 4, for pixels j < pixels and channels k < width. (For spread weights see
// framework/simd/int8_vector.h.) The result is y[j out_step + k / 16 out_block + k % 16].
struct Int8Tiles {  // common to many tiles
  std::int64_t depth = 0;
  int quads = 4, last_quads = 4;
  std::int64_t in_block = 0, in_step = 0;
  const std::int8_t* w = nullptr;
  std::int64_t w_block = 0;
  const std::int32_t* start = nullptr;       // [width]
  std::int64_t channel = 0;                  // channel of lane 0 in the arrays of `outputs`
  std::int64_t out_block = 0, out_step = 0;  // in elements
  const Int8Outputs* outputs = nullptr;
};
struct Int8Tile {
  std::int64_t repeat;  // number of consecutive tiles with the same taps
  int pixels;
  int taps;
  const Int8Tap* tap;
  const std::uint8_t* in;
  void* out;             // codes, or f32 when outputs->codes is false
  const void* residual;  // in the layout of y
};

struct Int8Kernels {
  int lanes = 0;  // of a vector of accumulators
  // most pixels of a tile of one or two vectors; tiles of four vectors have half as many
  int pixels = 0;
  int unit = 1;          // pixels stored at once: with short sums, tiles should be multiples
  int weight_bytes = 0;  // bytes of four weights of one lane: 4, or 8 where weights are spread
  // Runs tiles of `width` vectors: 1, 2 or 4.
  void (*tile)(const Int8Tiles& tiles, const Int8Tile& tile, int width) = nullptr;
};

extern IsaTable<Int8Kernels> int8_kernels;

}  // namespace convscope
