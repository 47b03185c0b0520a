// SPDX-License-Identifier: Apache-2.0
// fft_plan.h: the tiling of convolution by FFT (tiles, blocks of tiles) and its cost, computed from
// the problem's sizes.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

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

// Measured costs in units of one vector FMA. kFftOperations is a complex transform with its loads
// and stores, kPixelOperations moving a pixel into its lane. The next two are moving a vector of a
// spectrum, and kPointOperations is a point of a product without a sum. The estimate for depthwise
// is the sum of these costs divided by kDepthwiseShare. Products with a sum over channels reach
// kProductShare of the peak.
inline constexpr double kFftOperations[kFftLengthCount] = {170, 230, 320, 390, 560, 900, 1250};
inline constexpr double kPixelOperations = 5;
inline constexpr double kSpectrumOperations = 4;      // from L2
inline constexpr double kFarSpectrumOperations = 14;  // from L3, when other data use it as well
inline constexpr double kFarFloats = 2.5e6;           // 10 MB; for twice as many the cost doubles
inline constexpr double kPointOperations = 3;
inline constexpr double kDepthwiseShare = 0.7;
inline constexpr double kProductShare = 0.92;
inline constexpr double kGradientShare = 0.78;  // share of the peak in backward_weight

// FLOPs of the products and of the transforms; pixels moved into lanes; floats of spectra that are
// written and read; floats of prepared kernels.
struct FftCounts {
  double products, pixels, transforms, spectra, weights;
};

// The sizes of one group. In forward, `in` is x and `out` is y. In backward_data, `in` is dy and
// `out` is dx. Both sum over `depth` channels, and the result has `channels`. In backward_weight,
// `in` is x (`depth` channels), `out` is dy (`channels`), and the result is the kernels.
struct FftTiling {
  FftTiling(const Conv2dProblem& problem, Direction direction)
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
        rows(kFftLengthCount - 1, z.r, out_h),
        columns(kFftLengthCount - 1, z.s, out_w) {
    operations = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kFftLengthCount; ++i) {
      if (kFftLengths[i] < z.r) continue;
      const Axis down(i, z.r, out_h);
      for (int j = 0; j < kFftLengthCount; ++j) {
        if (kFftLengths[j] < z.s) continue;
        const Axis across(j, z.s, out_w);
        const double needed = operations_of(down, across);
        if (needed >= operations) continue;
        operations = needed;
        rows = down;
        columns = across;
      }
    }
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
  double operations = 0;  // time of the whole problem in units of one vector FMA
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

  double operations_of(const Axis& down, const Axis& across) const {
    const auto number = [](Index value) { return static_cast<double>(value); };
    const Counts n(*this, down, across);
    const double row = kFftOperations[across.kernels] / 2;
    const double column = kFftOperations[down.kernels] * number(across.length) / 2;
    const double pixel_row = kPixelOperations * number(across.in);
    const double columns_of_data = n.tiles * number(depth_blocks + channel_blocks) * column;
    // AVX2 and scalar code have 16 registers, so transforms and products spill more (measured).
    const double registers = lanes == 16 ? 1.0 : lanes == 8 ? 1.6 : 2.0;
    if (depthwise) {
      return registers *
             (n.rows * (row + pixel_row) + columns_of_data +
              kPointOperations * n.points * number(channel_blocks)) /
             kDepthwiseShare;
    }
    const double weights = number(depth_padded() * channel_blocks);
    const double floats = number(tiles_with(down, across) * tile_floats(down, across)) +
                          weights * number(z.r * across.length * lanes);
    const double far = std::min(2.0, floats / kFarFloats);
    const double vector =  // cost of a row's spectrum: transform and inverse
        2 * number(across.length) *
        (kSpectrumOperations + far * (kFarSpectrumOperations - kSpectrumOperations));
    const double transforms = n.rows * (row + pixel_row + vector) + columns_of_data;
    const double kernels =
        weights * (number(z.r) * (row + number(z.s) * kPixelOperations) +
                   number(blocks_of(down, across)) * (column + number(z.r) * vector / 2));
    const double products = 1.5 * n.points * weights;
    return number(z.groups) *
           (transforms + kernels + products / (for_dw ? kGradientShare : kProductShare));
  }

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
