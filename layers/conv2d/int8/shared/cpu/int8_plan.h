// SPDX-License-Identifier: Apache-2.0
// int8_plan.h: how a convolution on int8 values reads x, and its tiling into lines, tiles and
// chunks. It only computes sizes.
#pragma once

#include <algorithm>
#include <cmath>

#include "framework/int_math.h"
#include "framework/machine/cache_sizes.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "layers/conv2d/int8/shared/cpu/int8_sparse_tiles.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/nchw16c/walk.h"
#include "layers/dispatch/cost/cost.h"

namespace convscope::int8 {

using nchw16c::Index;
using nchw16c::kMaxTaps;

inline constexpr Index kQuad = 4;           // bytes whose products one instruction adds
inline constexpr double kChunkFlops = 4e6;  // a smaller chunk costs more than it saves
inline constexpr Index kFlatTiles = 8;      // tiles of a line of a 1x1 kernel
inline constexpr Index kSlack = 16;         // readable bytes after rows that are read in quads

// Where the bytes of x come from. The products read x as 0..255: signed codes get 128 added, and
// the accumulators begin at -128 times the sum of the weights.
//   in_place  the kernels read x, u8 in blocks of 16 channels, and skip taps outside the image
//   copied    i8: a copy in blocks, 128 added, with a border of 128
//   rows      a first layer: x is f32 [N,C,H,W], rounded to bytes [H,W,C] with a border. The S C
//             bytes of a row of the kernel are adjacent, so 3 channels waste no lanes.
enum class Int8Source { in_place, copied, rows };

inline Int8Source source_of(const Conv2dProblem& problem) {
  const DType x = problem.operand_types().x;
  return x == DType::u8   ? Int8Source::in_place
         : x == DType::i8 ? Int8Source::copied
                          : Int8Source::rows;
}

// Layout of the bytes of one image.
struct Int8Image {
  explicit Int8Image(const Conv2dProblem& z) : from(source_of(z)) {
    const bool border = from != Int8Source::in_place;
    pad_top = border ? 0 : z.pad_top;
    pad_left = border ? 0 : z.pad_left;
    h = z.h + (border ? z.pad_top + z.pad_bottom : 0);
    w = z.w + (border ? z.pad_left + z.pad_right : 0);
    if (from == Int8Source::rows) {
      pixel = z.c;
      row = w * pixel;
      block = 0;
      depth = 1;
      taps_s = z.dilation_w == 1 ? 1 : z.s;
      quads = last_quads = static_cast<int>(ceil_div(z.dilation_w == 1 ? z.s * z.c : z.c, kQuad));
      image = h * row + kSlack;
      return;
    }
    pixel = kChannelBlock;
    row = w * pixel;
    block = h * row;
    depth = ceil_div(z.c_per_group(), kChannelBlock);
    taps_s = z.s;
    last_quads = static_cast<int>(ceil_div(z.c_per_group() - (depth - 1) * kChannelBlock, kQuad));
    image = ceil_div(z.c, kChannelBlock) * block;
  }

  Int8Source from;
  Index pixel, row, block, image;  // bytes from one to the next
  Index depth;                     // blocks in the reduction
  Index taps_s;                    // taps of a kernel row: S, or 1 if a tap is the whole row
  int quads = 4, last_quads;       // quads for one tap and block
  Index h, w, pad_top, pad_left;
};

// A chunk is some images with some rows each. Each block of output channels reads the chunk's bytes
// of x once. These bytes take a quarter of L2, or half of L2 where the weights do not fit next to
// them. Each tile reads the weights of a block from L1 or L2: 128 bytes in 14 cycles.
struct Int8Plan : nchw16c::PassChunks {
  explicit Int8Plan(const Conv2dProblem& problem) : z(problem), x(problem) {
    const Int8Kernels& kernels = int8_kernels.get();
    lanes = kernels.lanes;
    weight_bytes = kernels.weight_bytes;
    sparse = !z.weight_format.is_dense();
    pixels = sparse ? int8_sparse_kernels.get().pixels : kernels.pixels;
    taps = z.r * x.taps_s;
    padded = round_up(z.k_per_group(), kChannelBlock);
    // For a 1x1 kernel that reads all pixels, a line may cross rows. With one output per image, as
    // in a linear layer, the images take the place of pixels.
    const bool in_nchw16c = x.from != Int8Source::rows;
    by_image = z.p() * z.q() == 1 && in_nchw16c;
    flat = !by_image && in_nchw16c && z.r * z.s == 1 && z.stride_h == 1 && z.stride_w == 1 &&
           z.pad_top + z.pad_bottom + z.pad_left + z.pad_right == 0;
    groups = z.groups;
    images = by_image ? 1 : z.n;
    const Index all = by_image ? z.n : flat ? z.p() * z.q() : z.q();
    if (!sparse && (flat || !in_nchw16c) && all > pixels) {
      unit = kernels.unit;
      pixels -= pixels % unit;
    }
    line = by_image || flat ? std::min(all, kFlatTiles * pixels) : all;
    rows = by_image || flat ? ceil_div(all, line) : z.p();
    columns = all;
    const bool narrow = lanes > 1 && 2 * line <= pixels && padded > 2 * lanes &&
                        padded % (4 * lanes) != 3 * lanes;  // no tile is three vectors wide
    widest = sparse ? kChannelBlock : (narrow ? 4 : 2) * lanes;
    blocks = ceil_div(padded, widest);  // of a tile's channels
    cut_chunks();
  }

  Index width_at(Index channel) const {
    if (sparse) return kChannelBlock;
    const Index rest = padded - channel;
    return rest <= lanes ? lanes : rest <= 2 * lanes ? 2 * lanes : widest;
  }
  int most_pixels(Index width) const { return !sparse && width > 2 * lanes ? pixels / 2 : pixels; }
  // Returns the bytes of packed dense weights for one tap and block with `width` channels. A group
  // has [blocks of `width`, blocks, taps, quads, width, 4].
  Index packed_tap(Index width) const {
    return (x.depth == 1 ? x.last_quads : x.quads) * width * weight_bytes;
  }
  Index packed(Index width) const { return x.depth * taps * packed_tap(width); }
  Index packed_group() const { return packed(round_up(padded, 4 * lanes)); }
  // Returns how many quads of x one output channel reads.
  Index all_quads() const { return taps * ((x.depth - 1) * x.quads + x.last_quads); }
  // Returns the length of arrays that are indexed by channel. Entries after the last channel are 0.
  Index channels() const { return z.groups * padded + 4 * lanes; }
  Index out_plane() const { return z.p() * z.q() * kChannelBlock; }
  std::size_t copy_bytes() const {  // bytes of the copy of all images
    return x.from == Int8Source::in_place ? 0 : static_cast<std::size_t>(z.n * x.image + kSlack);
  }
  Index out_image() const { return ceil_div(z.k, kChannelBlock) * out_plane(); }

  const Conv2dProblem& z;
  Int8Image x;
  bool by_image, flat;
  bool sparse = false;  // w is a list (int8_block_sparse_cpu.cpp)
  int pixels = 0;       // most pixels of a tile
  int unit = 1;         // tile lengths are multiples of it, except for the last tile of a line
  Index lanes = 0, weight_bytes = 0;
  Index taps = 0;
  Index padded = 0;             // channels of a group of y, in whole blocks
  Index line = 0, columns = 0;  // pixels of a line, and of all lines
  Index widest = 0;             // channels of a tile

 private:
  void cut_chunks() {
    const CacheSizes& caches = cache_sizes();
    const Index row_bytes = by_image ? line * x.image
                            : flat   ? line * kChannelBlock * x.depth
                                     : x.row * std::min(z.stride_h, z.r) * x.depth;
    const auto l2 = static_cast<Index>(caches.l2);
    const Index room = packed_group() > l2 / 4 ? l2 / 2 : l2 / 4;
    const Index fit = std::max<Index>(1, room / row_bytes);
    cut(fit, z.nominal_flops(), kChunkFlops);
  }
};

// Counts of a tiling whose tiles multiply `quads` quads of x (layers/dispatch/cost/cost.h).
inline double tiles_of(const Int8Plan& plan) {
  return number(plan.z.groups * plan.images * plan.rows * plan.blocks *
                ceil_div(plan.line, Index{plan.most_pixels(plan.widest)}));
}
inline double products_of(const Int8Plan& plan, double quads) {
  const double channels = number(plan.sparse ? plan.blocks * kChannelBlock : plan.padded);
  return 2 * number(plan.z.groups * plan.images * plan.columns * plan.z.p()) /
         number(plan.flat || plan.by_image ? plan.z.p() : 1) * channels * number(kQuad) * quads;
}
inline double loads_of(const Int8Plan& plan, double quads) {
  return tiles_of(plan) * quads * number(plan.widest) / number(plan.lanes);
}
inline double chunks_of(const Int8Plan& plan) {
  return number(plan.z.groups * plan.image_chunks * plan.row_chunks * plan.splits);
}

}  // namespace convscope::int8
