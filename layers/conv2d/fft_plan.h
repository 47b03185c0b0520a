// SPDX-License-Identifier: Apache-2.0
// fft_plan.h: how convolution by FFT cuts a problem into tiles and blocks of tiles, and what each
// choice costs; numbers only, from the problem alone.
#pragma once

#include <algorithm>

#include "framework/memory.h"
#include "layers/conv2d/fft_kernels.h"
#include "layers/conv2d/points.h"
#include "layers/conv2d/problem.h"

namespace convscope::fft {

using Index = std::int64_t;

inline constexpr Index kBlockFloats = 1 << 22;  // spectra of a block of tiles: 16 MiB of L3
inline constexpr Index kLeastTiles = 28;        // of a block: two register tiles of a product
inline constexpr Index kKernelsAtOnce = 8;      // taps in lanes: 8 x 121 x 64 B = 61 KiB of L2

inline Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

// One of the two axes: `count` tiles of `out` outputs each, which read `in` = out + taps - 1 pixels,
// the rest of the transform's length is 0.
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

// Vector operations of a complex transform with its loads and stores, measured in units of one FMA.
inline constexpr double kFftOperations[kFftLengthCount] = {230, 320, 390, 560, 900, 1250};
inline constexpr double kPixelOperations = 5;  // to bring a pixel into its lane
inline constexpr double kProductShare = 0.88;  // of the peak, in products

// Channels of one group. forward: in = x, out = y; backward_data: in = dy, out = dx; `depth`
// channels are summed over, `channels` computed. backward_weight: in = x (depth), out = dy
// (channels), and the kernels are computed.
struct Plan {
  Plan(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        forward(direction != Direction::backward_data),
        depth(forward ? z.c_per_group() : z.k_per_group()),
        channels(forward ? z.k_per_group() : z.c_per_group()),
        in_h(forward ? z.h : z.p()),
        in_w(forward ? z.w : z.q()),
        out_h(forward ? z.p() : z.h),
        out_w(forward ? z.q() : z.w),
        top(forward ? -z.pad_top : z.pad_top - (z.r - 1)),
        left(forward ? -z.pad_left : z.pad_left - (z.s - 1)),
        lanes(point_kernels.get().lanes),
        depth_blocks(ceil_div(depth, lanes)),
        channel_blocks(ceil_div(channels, lanes)),
        rows(kFftLengthCount - 1, z.r, out_h),
        columns(kFftLengthCount - 1, z.s, out_w) {
    bool found = false;
    for (int i = 0; i < kFftLengthCount; ++i) {
      if (kFftLengths[i] < z.r) continue;
      for (int j = 0; j < kFftLengthCount; ++j) {
        if (kFftLengths[j] < z.s) continue;
        const Axis down(i, z.r, out_h);
        const Axis across(j, z.s, out_w);
        const double cost = operations(down, across, direction);
        if (found && cost >= cycles) continue;
        found = true;
        cycles = cost;
        rows = down;
        columns = across;
      }
    }
    set_blocks(direction);
  }

  // A block's H [pairs, depth/L, tiles, in rows, 2, L] and G [pairs, channels/L, tiles, out rows,
  // 2, L]; W [pairs, channels/L, depth, R, 2, L].
  Index pairs() const { return columns.length / 2; }
  Index points() const { return 3 * rows.length; }  // of one pair's column
  Index tiles() const { return z.n * rows.count * columns.count; }
  Index in_pair() const { return odd_lines(depth_blocks * block_tiles * rows.in * 2 * lanes); }
  Index out_pair() const { return odd_lines(channel_blocks * block_tiles * rows.out * 2 * lanes); }
  Index weight_pair() const { return odd_lines(channel_blocks * depth_padded() * z.r * 2 * lanes); }
  // In backward_weight each lane of x makes sums, those that no channel fills as well.
  Index depth_padded() const { return of_weights ? depth_blocks * lanes : depth; }
  Index shared_floats() const { return pairs() * (in_pair() + out_pair() + weight_pair()); }

  // Points of one pair's column, each thread its own: V [points, depth/L, tiles, L]; forward and
  // backward_data: U [points, depth, vectors L] and M [points, vectors, tiles, L]; backward_weight:
  // V of dy [points, channels/L, tiles, L], sums [points, vectors, depth, L].
  Index v_point() const { return odd_lines(depth_blocks * block_tiles * lanes); }
  Index u_point() const {
    return of_weights ? odd_lines(channel_blocks * block_tiles * lanes)
                      : odd_lines(depth * vectors() * lanes);
  }
  Index m_point() const {
    return odd_lines(vectors() * (of_weights ? depth_padded() : block_tiles) * lanes);
  }
  Index vectors() const {
    const PointKernels& kernels = point_kernels.get();
    return std::min<Index>(channel_blocks, of_weights ? kernels.sum_vectors : kernels.vectors);
  }
  Index panel_floats() const {
    return std::max(rows.in * columns.in, kKernelsAtOnce * z.r * z.s) * lanes;
  }
  Index thread_floats() const {
    return odd_lines(std::max(points() * (v_point() + u_point() + m_point()), panel_floats()));
  }

  // Vector operations of one group with these tiles.
  double operations(const Axis& down, const Axis& across, Direction direction) const {
    const auto number = [](Index value) { return static_cast<double>(value); };
    const double row = kFftOperations[across.kernels] / 2;
    const double column = kFftOperations[down.kernels] * number(across.length) / 2;
    const double pixels = kPixelOperations * number(down.in * across.in);
    const bool weights = direction == Direction::backward_weight;
    const Index all = z.n * down.count * across.count;
    const double passes = std::max(
        1.0, number(all * (depth_blocks + channel_blocks) * down.length * across.length * lanes) /
                 number(kBlockFloats));
    const double transforms =
        number(all) * (number(depth_blocks) * (pixels + number(down.in) * row + column) +
                       number(channel_blocks) * (pixels + number(down.out) * row + column));
    const double kernels =
        number((weights ? depth_blocks * lanes : depth) * channel_blocks) *
        (number(z.r) * row + kPixelOperations * number(z.r * z.s) + passes * column);
    const double products =
        number(all * (weights ? depth_blocks * lanes : depth) * channel_blocks) * 1.5 *
        number(down.length * across.length) / kProductShare;
    return transforms + kernels + products;
  }

  const Conv2dProblem& z;
  bool forward;
  bool of_weights = false;
  Index depth, channels;
  Index in_h, in_w, out_h, out_w;
  Index top, left;  // the pixel of `in` that the first tap of output 0 reads
  Index lanes, depth_blocks, channel_blocks;
  Axis rows, columns;
  double cycles = 0;
  Index block_tiles = 1, blocks = 0;

 private:
  void set_blocks(Direction direction) {
    of_weights = direction == Direction::backward_weight;
    const Index per_tile =
        (depth_blocks * rows.in + channel_blocks * rows.out) * columns.length * lanes;
    block_tiles = std::clamp<Index>(std::max(kBlockFloats / per_tile, kLeastTiles), 1,
                                    std::max<Index>(1, tiles()));
    blocks = ceil_div(tiles(), block_tiles);
    if (blocks > 0) block_tiles = ceil_div(tiles(), blocks);
  }
};

}  // namespace convscope::fft
