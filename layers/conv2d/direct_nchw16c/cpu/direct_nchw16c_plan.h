// SPDX-License-Identifier: Apache-2.0
// direct_nchw16c_plan.h: the tiling of a convolution in NCHW16c into lines, tiles and chunks. It
// only computes sizes.
#pragma once

#include <algorithm>

#include "framework/int_math.h"
#include "framework/machine/cache_sizes.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/nchw16c/walk.h"
#include "layers/conv2d/shared/nchw16c_tiles.h"
#include "layers/conv2d/shared/weight_sums.h"

namespace convscope::direct_nchw16c {

using namespace nchw16c;  // the walk over images in blocks

inline constexpr Index kChunks = 16;        // least number for the threads, in backward_weight
inline constexpr double kChunkFlops = 1e6;  // a smaller chunk costs more than it saves
inline constexpr Index kMaxTiles = 64;      // in a group
inline constexpr Index kKeptFloats = 4096;

// forward: in = x, out = y. backward_data: in = dy, out = dx. The columns of dx are divided into
// `parts` by their residue modulo stride_w: columns of one part read neighbouring columns of dy.
//
// Repeated reads, and the caches that serve them (sizes of L1 and L2 of a core):
//   x chunk   the pixels of `in` of a chunk (images x rows), once for each block of output
//             channels; they take a quarter of L2. The weights are read once for each chunk; where
//             they do not fit into L2, too, a chunk takes half of it, and several images.
//   weights   of one chain (kSumChain products at most) and one block of channels, once for each
//             tile of a group, from L1: up to 160 products of 32 channels with AVX-512 are 20 KiB,
//             of 16 channels with AVX2 10 KiB.
//   kept      the unfinished sums of a group of tiles; a quarter of L1. The rest holds the weights
//             and `in` of two tiles: this one's and the next one's, which is prefetched.
struct Nchw16cTiling : PassChunks {
  Nchw16cTiling(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        forward(direction == Direction::forward),
        flat(z.r * z.s == 1 && z.stride_h == 1 && z.stride_w == 1 && z.pad_top == 0 &&
             z.pad_bottom == 0 && z.pad_left == 0 && z.pad_right == 0),
        depth(ceil_div(forward ? z.c_per_group() : z.k_per_group(), kChannelBlock)),
        in_channels(forward ? z.c_per_group() : z.k_per_group()),
        channels(forward ? z.k_per_group() : z.c_per_group()),
        padded(round_up(channels, kChannelBlock)),
        tap_channels(std::min(in_channels, kChannelBlock)),
        taps(z.r * z.s),
        in_h(forward ? z.h : z.p()),
        in_w(forward ? z.w : z.q()),
        out_h(forward ? z.p() : z.h),
        out_w(forward ? z.q() : z.w),
        row_parts(forward ? 1 : z.stride_h),
        parts(forward ? 1 : z.stride_w) {
    groups = z.groups;
    images = z.n;
    if (flat) {  // pixels have no rows
      in_w = out_w = in_h * in_w;
      in_h = out_h = 1;
    }
    const Nchw16cKernels& kernels = nchw16c_kernels.get();
    lanes = kernels.lanes;
    line = flat ? std::min<Index>(out_w, kFlatTiles * kernels.pixels) : ceil_div(out_w, parts);
    rows = flat ? ceil_div(out_w, line) : out_h;
    // Tiles have four vectors of channels and few pixels on narrow images, else two vectors and
    // many pixels.
    const bool narrow = lanes > 1 && 2 * line <= kernels.pixels && channels > 2 * lanes &&
                        padded % (4 * lanes) != 3 * lanes;  // no tile is three vectors wide
    widest = (narrow ? 4 : 2) * lanes;
    blocks = ceil_div(padded, widest);  // of a tile's channels
    cut_chunks(kernels);
  }

  Index width_at(Index channel) const {
    const Index rest = padded - channel;
    return rest <= lanes ? lanes : rest <= 2 * lanes ? 2 * lanes : widest;
  }
  // Returns the floats of the packed weights of one group: [blocks of `width`, blocks of `in`,
  // taps, tap_channels, width].
  Index group_weights() const { return round_up(padded, 4 * lanes) * depth * taps * tap_channels; }
  Index in_plane() const { return in_h * in_w * kChannelBlock; }  // of one block of channels
  Index in_group(Index n, Index g) const {                        // offset of the group
    return (n * in_blocks() + g * in_channels / kChannelBlock) * in_plane();
  }
  int last_channels() const {  // of the last block
    return static_cast<int>(in_channels - (depth - 1) * kChannelBlock);
  }
  Index out_plane() const { return out_h * out_w * kChannelBlock; }
  Index in_blocks() const { return ceil_div(forward ? z.c : z.k, kChannelBlock); }  // of an image
  Index out_blocks() const { return ceil_div(forward ? z.k : z.c, kChannelBlock); }
  // Returns the most taps that pixels of a part may have. Pixels at the border have fewer taps.
  Index taps_of(Index row_part, Index part) const {
    if (forward) return taps;
    return taps_of_axis(row_part + z.pad_top, z.r, z.dilation_h, z.stride_h) *
           taps_of_axis(part + z.pad_left, z.s, z.dilation_w, z.stride_w);
  }

  static constexpr Index kFlatTiles = 8;

  const Conv2dProblem& z;
  bool forward;
  bool flat;
  // Sizes of a group. `depth` is the number of channel blocks in the reduction, `taps` is R S.
  Index depth, in_channels, channels, padded;
  Index tap_channels;  // in packed weights: 16, or all where there are fewer
  Index taps;
  Index in_h, in_w, out_h, out_w;
  Index row_parts, parts;  // rows and columns of out, by residue
  // A row is a row of out, or a run of pixels if flat. A line is a part of a row.
  Index lanes = 0, line = 0;
  Index widest = 0;         // channels of a tile
  Index tiles_at_once = 1;  // in a group

 private:
  static Index taps_of_axis(Index first, Index size, Index dilation, Index stride) {
    Index count = 0;
    for (Index i = 0; i < size; ++i) count += (first - i * dilation) % stride == 0 ? 1 : 0;
    return count;
  }

  void cut_chunks(const Nchw16cKernels& kernels) {
    const CacheSizes& caches = cache_sizes();
    // Floats of `in` that a row of out reads and the previous row did not. With a stride larger
    // than the kernel, some rows are never read. Every pixel of a row is loaded, because caches
    // fetch lines in pairs.
    const Index high = std::min(z.stride_h, (z.r - 1) * z.dilation_h + 1);
    const Index row_floats = flat ? line : forward ? in_w * high : ceil_div(in_w, z.stride_h);
    const auto l2 = static_cast<Index>(caches.l2 / sizeof(float));
    const Index room = group_weights() > l2 / 4 ? l2 / 2 : l2 / 4;
    const Index fit = std::max<Index>(1, room / (depth * tap_channels * row_floats));
    cut(fit, z.nominal_flops(), kChunkFlops);
    const Index chain = std::max<Index>(1, kSumChain / tap_channels);
    if (depth * taps > chain) {  // with one chain no tile waits for other tiles
      const Index tile = widest * (widest > 2 * lanes ? kernels.pixels / 2 : kernels.pixels);
      const Index kept = std::min(kKeptFloats, static_cast<Index>(caches.l1 / sizeof(float)) / 4);
      tiles_at_once = std::clamp<Index>(std::min(kept / tile, kMaxTaps / taps), 1, kMaxTiles);
    }
  }
};

}  // namespace convscope::direct_nchw16c
