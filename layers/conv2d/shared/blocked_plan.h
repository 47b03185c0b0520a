// SPDX-License-Identifier: Apache-2.0
// blocked_plan.h: how a convolution in the blocked layout is cut into lines, tiles and chunks;
// numbers only.
#pragma once

#include <algorithm>

#include "framework/int_math.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/blocked_tiles.h"
#include "layers/conv2d/shared/weight_sums.h"

namespace convscope::blocked {

using Index = std::int64_t;

// The pixels of `in` that a chunk reads again for each block of output channels: half of a second
// cache of 512 KiB, beside the weights of a block.
inline constexpr Index kChunkFloats = 64 * 1024;
inline constexpr Index kChunks = 16;  // for the threads, when images and rows give fewer

// forward: in = x, out = y. backward_data: in = dy, out = dx; columns of dx fall into `classes`,
// the residues modulo stride_w: those of one class read neighbouring columns of dy.
struct Pass {
  Pass(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        forward(direction == Direction::forward),
        planes(forward && z.layout == ActivationLayout::blocked_y),
        depth(ceil_div(forward ? z.c_per_group() : z.k_per_group(), kChannelBlock)),
        in_channels(forward ? z.c_per_group() : z.k_per_group()),
        channels(forward ? z.k_per_group() : z.c_per_group()),
        padded(round_up(channels, kChannelBlock)),
        in_channel_step(planes ? z.h * z.w : 1),
        in_pixel(planes ? 1 : kChannelBlock),
        tap_channels(std::min(in_channels, kChannelBlock)),
        taps(z.r * z.s),
        in_h(forward ? z.h : z.p()),
        in_w(forward ? z.w : z.q()),
        out_h(forward ? z.p() : z.h),
        out_w(forward ? z.q() : z.w),
        classes(forward ? 1 : z.stride_w) {
    const bool flat = taps == 1 && z.stride_h == 1 && z.stride_w == 1 && z.pad_top == 0 &&
                      z.pad_bottom == 0 && z.pad_left == 0 && z.pad_right == 0;
    if (flat) {  // pixels have no rows
      in_w = out_w = in_h * in_w;
      in_h = out_h = 1;
    }
    const BlockedKernels& kernels = blocked_kernels.get();
    lanes = kernels.lanes;
    line = flat ? std::min<Index>(out_w, kFlatTiles * kernels.pixels) : ceil_div(out_w, classes);
    lines_of_row = flat ? ceil_div(out_w, line) : classes;
    lines = out_h * lines_of_row;
    // Four vectors of channels by few pixels on narrow images, else two by many.
    const bool narrow = lanes > 1 && 2 * line <= kernels.pixels && channels > 2 * lanes &&
                        padded % (4 * lanes) != 3 * lanes;  // no tile is three vectors wide
    widest = (narrow ? 4 : 2) * lanes;
    blocks = ceil_div(padded, widest);
    // Pixels of `in` for a row of out, or for a run of pixels.
    const Index rows_in = flat ? line : in_w * (forward ? z.stride_h : 1);
    const Index fit = std::max<Index>(1, kChunkFloats / (depth * kChannelBlock * rows_in));
    // Chunks of nearly equal height.
    const Index most = std::min(fit * (flat ? 1 : lines_of_row), lines);
    lines_at_once = ceil_div(lines, ceil_div(lines, most));
    line_chunks = ceil_div(lines, lines_at_once);
    const Index chunks = z.n * z.groups * line_chunks;
    splits = std::clamp<Index>(ceil_div(kChunks, chunks), 1, blocks);
    if (z.nominal_flops() / static_cast<double>(chunks) < 1e6) splits = 1;
  }

  Index width_at(Index channel) const {
    const Index rest = padded - channel;
    return rest <= lanes ? lanes : rest <= 2 * lanes ? 2 * lanes : widest;
  }
  // Floats of the packed weights of one group: [blocks of `width`, depth, taps, tap_channels,
  // width].
  Index group_weights() const { return round_up(padded, 4 * lanes) * depth * taps * tap_channels; }
  Index in_plane() const { return in_h * in_w * kChannelBlock; }  // of one block of channels
  Index in_group(Index n, Index g) const {                        // where it begins
    return planes ? (n * z.c + g * in_channels) * in_h * in_w
                  : (n * in_blocks() + g * in_channels / kChannelBlock) * in_plane();
  }
  int last_channels() const {  // of the last block
    return static_cast<int>(in_channels - (depth - 1) * kChannelBlock);
  }
  Index out_plane() const { return out_h * out_w * kChannelBlock; }
  Index in_blocks() const { return ceil_div(forward ? z.c : z.k, kChannelBlock); }  // of an image
  Index out_blocks() const { return ceil_div(forward ? z.k : z.c, kChannelBlock); }

  static constexpr Index kFlatTiles = 8;

  const Conv2dProblem& z;
  bool forward;
  bool planes;  // `in` lies [N,C,H,W]
  // Of a group. depth: blocks of channels that are summed over; taps: R S.
  Index depth, in_channels, channels, padded;
  Index in_channel_step, in_pixel;  // floats to the next channel, to the next pixel of `in`
  Index tap_channels;               // of packed weights: 16, or all where there are fewer
  Index taps;
  Index in_h, in_w, out_h, out_w, classes;
  Index lanes = 0, line = 0, lines_of_row = 0, lines = 0;
  Index widest = 0, blocks = 0;  // channels of a tile; tiles of all channels
  Index lines_at_once = 1, line_chunks = 1, splits = 1;  // of a chunk, of an image, of `blocks`
};

// A chunk sums one block of output channels over one slice of the images.
struct WeightPlan : WeightBlocks {
  explicit WeightPlan(const Conv2dProblem& problem) : WeightBlocks(problem), p(z.p()), q(z.q()) {
    // Rows of dy and of one block of x that stay in the first cache while all taps read them.
    const bool planes = z.layout == ActivationLayout::blocked_y;
    const Index x_channels = planes ? std::min(z.c_per_group(), kChannelBlock) : kChannelBlock;
    const Index row = q * width + z.w * z.stride_h * x_channels;
    rows = std::clamp<Index>(kStripFloats / row, 1, p);
    rows = ceil_div(p, ceil_div(p, rows));
    const Index wanted = ceil_div(kChunks, z.groups * blocks);
    const Index room = std::max<Index>(
        1, (Index{1} << 22) / std::max<Index>(1, z.groups * blocks * width * depth));
    slices = slices_for(std::min(wanted, room), ceil_div(p, rows));
  }
  static constexpr Index kStripFloats = 6 * 1024;  // 24 of 32 KiB
  Index p, q;
  Index rows = 1;
};

}  // namespace convscope::blocked
