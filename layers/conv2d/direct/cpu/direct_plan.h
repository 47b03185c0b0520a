// SPDX-License-Identifier: Apache-2.0
// direct_plan.h: the tiling of direct convolution: the sizes of panels, blocks and chunks of work.
#pragma once

#include <algorithm>

#include "framework/int_math.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/tiles.h"
#include "layers/conv2d/shared/weight_sums.h"

namespace convscope::direct {

using Index = std::int64_t;

inline constexpr Index kPanelFloats = 64 * 1024;
inline constexpr Index kMaxTaps = 1024;
inline constexpr Index kSlices = 16;

// Avoids multiples of 1 KiB, so that a panel's channels use all cache sets.
inline Index spread(Index floats) { return floats % 256 == 0 ? floats + 16 : floats; }

// Returns an equivalent problem with limited strides. If y has only one row or column, its stride
// has no effect, and a longer stride would only add phases to the passes below.
inline Conv2dProblem with_short_strides(Conv2dProblem z) {
  const Index h = z.h + z.pad_top + z.pad_bottom - z.dilation_h * (z.r - 1);
  const Index w = z.w + z.pad_left + z.pad_right - z.dilation_w * (z.s - 1);
  z.stride_h = std::min(z.stride_h, h);
  z.stride_w = std::min(z.stride_w, w);
  return z;
}

// Returns whether the lanes of a register tile hold neighbouring pixels of one channel, and not
// channels of one pixel: what the cost model expects to be faster (direct_cpu.cpp).
bool has_pixels_in_lanes(const Conv2dProblem& z, Direction direction);

// The sizes of a pass. In forward, `in` is x and `out` is y; in backward_data, `in` is dy and `out`
// is dx. Columns of `out` are split into `classes`, in dx by the residue modulo stride_w.
// Neighbouring columns of one class read neighbouring columns of `in`.
struct DirectTiling {
  DirectTiling(const Conv2dProblem& problem, Direction direction)
      : DirectTiling(problem, direction, has_pixels_in_lanes(problem, direction)) {}
  DirectTiling(const Conv2dProblem& problem, Direction direction, bool pixels_in_lanes)
      : z(with_short_strides(problem)),
        forward(direction == Direction::forward),
        depth(forward ? z.c_per_group() : z.k_per_group()),
        channels(forward ? z.k_per_group() : z.c_per_group()),
        taps(z.r * z.s),
        in_h(forward ? z.h : z.p()),
        in_w(forward ? z.w : z.q()),
        out_h(forward ? z.p() : z.h),
        out_w(forward ? z.q() : z.w),
        classes(forward ? 1 : z.stride_w),
        phases(forward ? z.stride_w : 1),
        class_w(ceil_div(out_w, classes)),
        by_pixels(pixels_in_lanes) {
    const Index reach = (z.s - 1) * z.dilation_w;
    if (forward) {
      left = z.pad_left;
      columns = class_w + reach / phases;
    } else {
      left = std::max<Index>(0, -floor_div(z.pad_left - reach, classes));
      columns = left + (classes - 1 + z.pad_left) / classes + class_w;
    }
    const TileKernels& kernels = tile_kernels.get();
    lanes = kernels.lanes;
    row_step = phases * columns;
    row_count = fitting_rows();
    channel_step = spread(in_rows(row_count) * row_step);
    row_blocks = ceil_div(out_h, row_count);
    blocks = by_pixels ? ceil_div(channels, kernels.rows) : ceil_div(channels, widest());
    const Index chunks = z.n * z.groups * row_blocks;
    splits = std::clamp<Index>(ceil_div(kSlices, chunks), 1, blocks);
    if (z.nominal_flops() / static_cast<double>(chunks) < 1e6) splits = 1;
  }

  // Returns the maximum number of rows of `in` that `rows` rows of `out` read.
  Index in_rows(Index rows) const {
    const Index reach = (z.r - 1) * z.dilation_h;
    const Index span =
        forward ? (rows - 1) * z.stride_h + reach + 1 : (rows - 1 + reach) / z.stride_h + 1;
    return std::min(span, in_h);
  }
  Index fitting_rows() const {
    Index rows = 1;
    while (rows < out_h && depth * in_rows(rows + 1) * row_step <= kPanelFloats) ++rows;
    return ceil_div(out_h, ceil_div(out_h, rows));  // blocks of nearly equal height
  }
  // Returns the row of `in` that kernel row r reads for row o of `out`, or -1.
  Index in_row(Index o, Index r) const {
    Index row =
        forward ? o * z.stride_h - z.pad_top + r * z.dilation_h : o + z.pad_top - r * z.dilation_h;
    if (!forward) {
      if (row < 0 || row % z.stride_h != 0) return -1;
      row /= z.stride_h;
    }
    return row >= 0 && row < in_h ? row : -1;
  }
  Index first_in_row(Index o) const {
    const Index row = forward ? o * z.stride_h - z.pad_top
                              : -floor_div((z.r - 1) * z.dilation_h - z.pad_top - o, z.stride_h);
    return std::clamp<Index>(row, 0, in_h);
  }
  Index last_in_row(Index o) const {  // one after the last
    const Index row = forward ? o * z.stride_h - z.pad_top + (z.r - 1) * z.dilation_h
                              : floor_div(o + z.pad_top, z.stride_h);
    return std::clamp<Index>(row + 1, 0, in_h);
  }

  // Returns the maximum number of channels of a tile: 4 vectors for narrow images, whose tiles have
  // few pixels, else 2 vectors.
  Index widest() const {
    const Index pixels = tile_kernels.get().pixels;
    const bool narrow = lanes > 1 && 2 * class_w <= pixels && channels > 2 * lanes;
    return (narrow ? 4 : 2) * lanes;
  }
  Index width_at(Index k) const {
    const Index rest = channels - k;
    if (rest <= lanes) return lanes;
    if (rest <= 2 * lanes) return 2 * lanes;
    return widest();
  }
  Index padded_channels() const { return by_pixels ? channels : round_up(channels, lanes * 4); }
  Index weight_floats() const { return piece_floats(z.groups * padded_channels() * depth * taps); }
  Index panel_floats() const { return piece_floats(depth * channel_step + 64); }
  Index woven_floats() const {
    return classes == 1 ? 0 : piece_floats(4 * lanes * classes * class_w);
  }
  Index thread_floats() const { return panel_floats() + woven_floats(); }

  Conv2dProblem z;
  bool forward;
  Index depth, channels, taps;  // for a group: reduced channels; output channels; R S
  Index in_h, in_w, out_h, out_w;
  Index classes, phases, class_w;
  Index left = 0, columns = 0;  // of a row of a panel
  Index lanes = 0, row_step = 0, row_count = 0, channel_step = 0, row_blocks = 0;
  Index blocks = 0, splits = 1;  // of output channels
  bool by_pixels = false;
};

// A chunk of work is one block of output channels over one slice of the images.
struct DirectWeightTiling : WeightBlocks {
  explicit DirectWeightTiling(const Conv2dProblem& problem)
      : WeightBlocks(problem),
        channels(z.c_per_group()),
        taps(z.r * z.s),
        p(z.p()),
        q(z.q()),
        columns((q - 1) * z.stride_w + (z.s - 1) * z.dilation_w + 1),
        in_place(z.pad_left == 0 && columns <= z.w) {
    rows = 1;
    while (rows < p && (in_place || in_rows(rows + 1) * columns <= kPanelFloats / 16) &&
           (rows + 1) * q * width <= kPanelFloats / 2) {
      ++rows;
    }
    rows = ceil_div(p, ceil_div(p, rows));
    channel_step = spread(in_rows(rows) * columns);
    channels_at_once =
        in_place ? channels : std::clamp<Index>(kPanelFloats / channel_step, 1, channels);
    const Index wanted = ceil_div(kSlices, z.groups * blocks);
    const Index room = std::max<Index>(
        1, (Index{1} << 22) / std::max<Index>(1, z.groups * padded_kernels() * depth));
    slices = slices_for(std::min(wanted, room), ceil_div(p, rows));
  }
  Index in_rows(Index of) const {
    return std::min((of - 1) * z.stride_h + (z.r - 1) * z.dilation_h + 1, z.h);
  }
  Index padded_kernels() const { return blocks * width; }
  Index panel_floats() const {
    return in_place ? 0 : piece_floats(channels_at_once * channel_step);
  }
  Index thread_floats() const { return panel_floats() + piece_floats(rows * q * width); }

  Index channels, taps, p, q, columns;
  bool in_place;  // whether x is read without a copy, because no zeros are needed left or right
  Index rows = 1, channel_step = 0, channels_at_once = 1;
};

}  // namespace convscope::direct
