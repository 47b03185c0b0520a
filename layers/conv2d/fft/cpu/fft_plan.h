// SPDX-License-Identifier: Apache-2.0
// fft_plan.h: the tiling of convolution by FFT (tiles, blocks of tiles) and its cost, computed from
// the problem's sizes.
#pragma once

#include <algorithm>
#include <cmath>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "layers/conv2d/fft/cpu/fft_kernels.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/points.h"

namespace convscope::fft {

using Index = std::int64_t;

inline constexpr Index kBlockFloats = 1 << 20;  // 4 MiB of L3 for a block's spectra
inline constexpr Index kLeastTiles = 27;        // of a block: three register tiles of a product
inline constexpr Index kKernelsAtOnce = 8;      // 8 x 121 taps x 64 B = 61 KiB of L2

// One of the two axes of an image: `count` tiles with `out` outputs each. A tile reads `in` = out +
// taps - 1 pixels; zeros fill up the transform's length.
struct Axis {
  Axis(int which, Index taps, Index outputs)
      : kernels(which),
        length(kFftLengths[which]),
        count(ceil_div(outputs, length - taps + 1)),
        out(ceil_div(outputs, count)),
        in(out + taps - 1) {}
  int kernels;  // index into FftKernels::lengths
  Index length, count, out, in;
};

// FLOPs of the products and of the transforms; pixels moved into lanes; floats of spectra that are
// written and read; floats of prepared kernels.
struct FftCounts {
  double products, pixels, transforms, spectra, weights;
};

// The sizes of one group. In forward, `in` is x and `out` is y. In backward_data, `in` is dy and
// `out` is dx. Both sum over `depth` channels, and the result has `channels`. In backward_weight,
// `in` is x (`depth` channels), `out` is dy (`channels`), and the result is the kernels.
// The transforms' lengths down and across an image, as indices into kFftLengths.
struct FftLengths {
  int down = kFftLengthCount - 1, across = kFftLengthCount - 1;
};
// Returns the lengths that the cost model expects to be fastest (fft_cpu.cpp).
FftLengths lengths_of(const Conv2dProblem& z, Direction direction);

struct FftTiling {
  FftTiling(const Conv2dProblem& problem, Direction direction)
      : FftTiling(problem, direction, lengths_of(problem, direction)) {}
  FftTiling(const Conv2dProblem& problem, Direction direction, const FftLengths& lengths)
      : z(problem),
        forward(direction != Direction::backward_data),
        depthwise(z.groups > 1 && z.c_per_group() == 1 && z.k_per_group() == 1),
        depth(depthwise ? z.groups
              : forward ? z.c_per_group()
                        : z.k_per_group()),
        channels(depthwise ? z.groups
                 : forward ? z.k_per_group()
                           : z.c_per_group()),
        in_h(forward ? z.h : z.p()),
        in_w(forward ? z.w : z.q()),
        out_h(forward ? z.p() : z.h),
        out_w(forward ? z.q() : z.w),
        top(forward ? -z.pad_top : z.pad_top - (z.r - 1)),
        left(forward ? -z.pad_left : z.pad_left - (z.s - 1)),
        lanes(point_kernels.get().lanes),
        depth_blocks(ceil_div(depth, lanes)),
        channel_blocks(ceil_div(channels, lanes)),
        for_dw(direction == Direction::backward_weight),
        rows(lengths.down, z.r, out_h),
        columns(lengths.across, z.s, out_w) {
    blocks = blocks_of(rows, columns);
    block_tiles = ceil_div(tiles(), blocks);
  }

  // Returns the number of pairs, the first dimension of the arrays of a block:
  //   H [pairs, `depth`/L, tiles, in rows, 2, L], G [pairs, channels/L, tiles, out rows, 2, L],
  //   W [pairs, channels/L, `depth`, R, 2, L]
  Index pairs() const { return columns.length / 2; }
  Index tiles() const { return z.n * rows.count * columns.count; }
  Index in_pair() const { return odd_lines(depth_blocks * block_tiles * rows.in * 2 * lanes); }
  Index out_pair() const { return odd_lines(channel_blocks * block_tiles * rows.out * 2 * lanes); }
  Index weight_pair() const { return odd_lines(channel_blocks * depth_padded() * z.r * 2 * lanes); }
  // Returns the number of summed channels. In backward_weight these are the channels of x, rounded
  // up to a multiple of L.
  Index depth_padded() const { return for_dw ? depth_blocks * lanes : depth; }
  Index weight_floats() const { return pairs() * weight_pair(); }  // W of a group
  // Returns the floats that threads share. They include W only in backward_weight, which computes
  // W; other directions prepare W before the call.
  Index shared_floats() const {
    return pairs() * (in_pair() + out_pair()) + (for_dw ? weight_floats() : 0);
  }

  // Returns the distance between two points of V. Each thread has arrays for one pair's transformed
  // column. forward and backward_data have V [3 T, `depth`/L, tiles, L], and for L output channels
  // at a time U [2 T, `depth`, L] and M [2 T, tiles, L]. backward_weight has V, the same array for
  // dy [2 T, channels/L, tiles, L], and sums [2 T, `depth`, L].
  Index v_point() const { return odd_lines(depth_blocks * block_tiles * lanes); }
  Index u_point() const {
    return odd_lines((for_dw ? channel_blocks * block_tiles : depth) * lanes);
  }
  Index m_point() const { return odd_lines((for_dw ? depth_padded() : block_tiles) * lanes); }
  Index panel_floats() const {
    return std::max(rows.in * columns.in, kKernelsAtOnce * z.r * z.s) * lanes;
  }
  float scale() const { return 1.0f / static_cast<float>(4 * rows.length * columns.length); }
  Index thread_floats() const {
    const Index points = rows.length * (3 * v_point() + 2 * u_point() + 2 * m_point());
    return odd_lines(std::max(points, panel_floats()));
  }

  // Returns the FLOPs of the whole problem.
  double flops() const {
    // Returns the FLOPs of a complex transform of length T, about 4 T log2(T).
    const auto transform = [&](Index length) {
      const auto t = static_cast<double>(length);
      return 4 * t * std::log2(t) * static_cast<double>(lanes);
    };
    const Counts n(*this, rows, columns);
    const double data = n.rows / 2 * transform(columns.length) + n.columns * transform(rows.length);
    if (depthwise) return data + 4 * n.points * static_cast<double>(channel_blocks * lanes);
    return static_cast<double>(z.groups) *
           (data + 3 * n.points * static_cast<double>(depth * channels));
  }

  // Returns what the cost model counts.
  FftCounts counts() const {
    const auto number = [](Index value) { return static_cast<double>(value); };
    const Counts n(*this, rows, columns);
    // 4 T log2(T) for a complex transform of length T, in each lane.
    const auto transform = [&](Index length) {
      return 4 * number(length) * std::log2(number(length)) * number(lanes);
    };
    const double kernels = number(depth_padded() * channel_blocks);
    const double times = depthwise ? 1 : number(z.groups);
    FftCounts out{
        .products =
            n.points * number(lanes) * (depthwise ? 4 * number(channel_blocks) : 3 * kernels),
        .pixels = n.rows * number(columns.in * lanes),
        .transforms = n.rows / 2 * transform(columns.length) + n.columns * transform(rows.length),
        .spectra = 4 * n.rows * number(columns.length * lanes),
        .weights = depthwise ? number(z.w_shape().numel())
                             : kernels * number(z.r * columns.length * lanes)};
    if (!depthwise) {  // the columns of the kernels' spectra, again for each block of tiles
      out.transforms +=
          kernels * number(blocks) * transform(rows.length) * number(columns.length) / 2;
    }
    out.products *= times;
    out.pixels *= times;
    out.transforms *= times;
    out.spectra *= times;
    out.weights *= times;
    return out;
  }

  const Conv2dProblem& z;
  bool forward;
  bool depthwise;  // one kernel for each channel, no sum; `depth` = channels = C
  Index depth, channels;
  Index in_h, in_w, out_h, out_w;
  Index top, left;  // pixel of `in` for the first tap of output 0
  Index lanes, depth_blocks, channel_blocks;
  bool for_dw;
  Axis rows, columns;
  Index block_tiles = 1, blocks = 0;

 private:
  // How many rows and columns of data a tiling transforms, and the points of its products.
  struct Counts {
    Counts(const FftTiling& plan, const Axis& down, const Axis& across)
        : tiles(static_cast<double>(plan.z.n * down.count * across.count)),
          rows(tiles *
               static_cast<double>(plan.depth_blocks * down.in + plan.channel_blocks * down.out)),
          columns(tiles * static_cast<double>(plan.depth_blocks + plan.channel_blocks) *
                  static_cast<double>(across.length) / 2),
          points(tiles * static_cast<double>(down.length * across.length)) {}
    double tiles, rows, columns, points;
  };

  Index tile_floats(const Axis& down, const Axis& across) const {
    return (depth_blocks * down.in + channel_blocks * down.out) * across.length * lanes;
  }
  Index tiles_with(const Axis& down, const Axis& across) const {
    const Index all = z.n * down.count * across.count;
    return std::clamp<Index>(kBlockFloats / tile_floats(down, across), std::min(kLeastTiles, all),
                             all);
  }
  Index blocks_of(const Axis& down, const Axis& across) const {
    return ceil_div(z.n * down.count * across.count, tiles_with(down, across));
  }
};

// The position of a tile: its image and its first output pixel.
struct Tile {
  Tile(const FftTiling& plan, Index index)
      : image(index / (plan.rows.count * plan.columns.count)),
        row(index / plan.columns.count % plan.rows.count * plan.rows.out),
        column(index % plan.columns.count * plan.columns.out) {}
  Index image, row, column;
};

}  // namespace convscope::fft
