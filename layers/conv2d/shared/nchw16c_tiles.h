// SPDX-License-Identifier: Apache-2.0
// nchw16c_tiles.h: the parts of direct and pointwise convolution in NCHW16c that depend on the
// instruction set: register tiles that read and write blocks of 16 channels in place
// (layers/dispatch/activation_layout.h).
//
// `in` is x in forward and dy in backward_data, `out` is y or dx. A line is a sequence of pixels in
// one row of `out` for which consecutive pixels read neighbouring pixels of `in`.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// One tap (r, s) of the kernel. For pixels [first, end) of the tile the tap is inside the image.
struct Nchw16cTap {
  std::int64_t in;  // offset of pixel 0, in floats
  std::int32_t w;
  std::int16_t first, end;
};

// Computes out[j out_step + lane(k)] = start[k] + residual + sum (if relu, at least 0 and at most
// `most`), where the sum of
//   w[d w_block + w_t + c width + k] in[d in_block + in_t + j in_step + c]
// runs over blocks d < `depth`, taps t with j in [first, end) and channels c < 16 (c < last in the
// last block), for pixels j < pixels and channels k < width; lane(k) = k / 16 out_block + k % 16.
struct Nchw16cTiles {  // what many tiles have in common
  std::int64_t depth = 0;
  int last = 16;
  std::int64_t in_block = 0, in_step = 0;
  const float* w = nullptr;
  std::int64_t w_block = 0;
  const float* start = nullptr;  // [starts], 0 for the following channels; null: all 0
  int starts = 0;
  std::int64_t out_block = 0, out_step = 0;
  bool relu = false;
  float most = 0;  // for relu; infinity: no bound
};
struct Nchw16cTile {
  int pixels;
  int taps;
  const Nchw16cTap* tap;
  const float* in;
  float* out;
  const float* residual;  // as `out`, or null
};

// A chain is a part of a sum: `depth` blocks from `block` on, and taps [tap, end) of the tile's
// list. The first chain of a sum starts from `start`, the last chain stores the result. Between
// chains, the sums of pixel j are in kept[j width ..].
struct Nchw16cChain {
  std::int64_t block, depth;
  int tap, end;
  bool first, last;
  std::int64_t ahead;  // distance from the weights to those that are prefetched into L2
};

// A row of sums of backward_weight: the offset of its channel in `in`, and the offset of its sums
// in `sums`.
struct Nchw16cWeightRow {
  std::int64_t in, sums;
};

// Computes sums[c sums_row + k] += sum over n < images, p < rows, q < columns of
//   in[n in_image + p in_row + q in_step + c]
//     beside[n beside_image + p beside_row + q beside_step + lane(k)]
// for channels c < channels <= 16 and lanes k < width, with lane(k) = k / 16 beside_block + k % 16.
// With `row`, channel c and its sums begin at row[c] instead of c and c sums_row. With `start`, the
// sums are assigned. One of `in` and `beside` is x, the other one is dy.
struct Nchw16cWeightTile {
  int channels = 0;
  const Nchw16cWeightRow* row = nullptr;
  std::int64_t images = 1, rows = 0, columns = 0;
  const float* in = nullptr;
  std::int64_t in_image = 0, in_row = 0, in_step = 0;
  std::int64_t ahead = 0;  // distance from a pixel of `in` to the pixel that a later tile needs
  // Data that later tiles read. With each pixel this tile prefetches `next_step` floats of them.
  const float* next = nullptr;
  std::int64_t next_step = 0;
  const float* beside = nullptr;
  std::int64_t beside_image = 0, beside_row = 0, beside_step = 16, beside_block = 0;
  float* sums = nullptr;
  std::int64_t sums_row = 0;
  bool start = false;
};

struct Nchw16cKernels {
  int lanes = 0;  // of a vector
  // most pixels of a tile of one or two vectors; tiles of four vectors have half as many
  int pixels = 0;
  // Runs tiles of `width` vectors of channels: 1, 2 or 4. A tile of at most 16 channels is inside
  // one block. A wider tile begins at the first channel of a block.
  void (*tile)(const Nchw16cTiles& tiles, const Nchw16cTile& tile, const Nchw16cChain& chain,
               float* kept, int width) = nullptr;
  void (*weight_tile)(const Nchw16cWeightTile& tile, int width) = nullptr;  // 1 or 2 vectors
};

extern IsaTable<Nchw16cKernels> nchw16c_kernels;

}  // namespace convscope
