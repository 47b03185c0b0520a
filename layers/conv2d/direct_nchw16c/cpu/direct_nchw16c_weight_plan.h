// SPDX-License-Identifier: Apache-2.0
// direct_nchw16c_weight_plan.h: the tiling of backward_weight in NCHW16c into chunks, units and
// tiles. It only computes sizes.
//
// Lanes      For a 1x1 kernel the lanes of a sum are input channels: dw [K, C] is written row by
//            row. For other kernels the lanes are output channels, and each block of sums is
//            transposed into dw. Rows are the channels that are not in the lanes; a block of rows
//            has 16 of them.
// Unit       Rows of pixels of an image, or a few small images. The tile's parts of x and dy stay
//            in 3/4 of L1 while all taps read them.
// Chunk      Some blocks of lanes x some blocks of rows, over a slice of the units. 3/4 of L2 holds
//            two things: the sums, while all units pass, and the rows' pixels of a unit, while all
//            blocks of lanes read them. One operand is loaded from beyond L2 once for each part of
//            the lanes, the other operand once for each part of the rows. The chosen cut has the
//            least of these loads. With sums of 1 MiB, 512 x 512 channels of a 1x1 kernel, a float
//            from beyond L2 is used for 512 products.
// Slices     There are enough slices to keep each sum to 160 totals (framework/simd/sum_chain.h),
//            and to provide the threads with some chunks. Each slice has its own copy of the sums.
#pragma once

#include <algorithm>

#include "framework/int_math.h"
#include "framework/machine/cache_sizes.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/nchw16c_tiles.h"
#include "layers/conv2d/shared/weight_sums.h"

namespace convscope::direct_nchw16c {

struct Nchw16cWeightTiling {
  using Index = std::int64_t;

  explicit Nchw16cWeightTiling(const Conv2dProblem& problem)
      : z(problem),
        h(z.h),
        w(z.w),
        p(z.p()),
        q(z.q()),
        taps(z.r * z.s),
        planes(z.layout == kNchwToNchw16c),
        lanes_are_inputs(taps == 1 && !planes),
        flat(lanes_are_inputs && z.stride_h == 1 && z.stride_w == 1 && p == h && q == w),
        lane_channels(lanes_are_inputs ? z.c_per_group() : z.k_per_group()),
        row_channels(lanes_are_inputs ? z.k_per_group() : z.c_per_group()),
        lanes(nchw16c_kernels.get().lanes),
        width(lane_channels > lanes ? 2 * lanes : lanes),
        lane_blocks(ceil_div(lane_channels, width)),
        row_blocks(ceil_div(row_channels, kChannelBlock)) {
    if (flat) {
      h = p = h * w;
      w = q = 1;
    }
    cut_units();
    cut_channels();
    cut_slices();
  }

  Index lane_parts() const { return ceil_div(lane_blocks, lane_step); }
  Index row_parts() const { return ceil_div(row_blocks, row_step); }
  Index parts() const { return z.groups * lane_parts() * row_parts(); }  // over all sums
  // Returns the size of the sums of one block of lanes: [rows, taps, width].
  Index block_floats() const {
    return std::min(row_step * kChannelBlock, row_channels) * taps * width;
  }
  Index part_floats() const { return piece_floats(lane_step * block_floats()); }

  const Conv2dProblem& z;
  Index h, w, p, q, taps;
  bool planes;  // x is [N,C,H,W]
  bool lanes_are_inputs;
  bool flat;  // 1x1 without stride and padding: each pixel of x and dy is treated as a row
  Index lane_channels, row_channels;  // sizes of a group
  Index lanes, width;                 // of a vector; of a tile, one vector or two
  Index lane_blocks, row_blocks;      // of a group: of `width` channels, of 16
  Index rows = 1, images = 1;         // of a unit; several images have all their rows
  Index strips = 1, units = 1;        // of an image; of the batch
  Index lane_step = 1, row_step = 1;  // blocks of a chunk
  Index slices = 1;

 private:
  static constexpr Index kChunks = 16;        // for the threads
  static constexpr Index kSlicePixels = 512;  // a slice costs three products for each sum
  static constexpr Index kSliceFloats = Index{1} << 22;  // sums of all slices
  static constexpr double kChunkFlops = 1e6;

  void cut_units() {
    const auto cache = static_cast<Index>(cache_sizes().l1 / sizeof(float) * 3 / 4);
    const Index x_channels = planes ? std::min(z.c_per_group(), kChannelBlock) : kChannelBlock;
    const Index row =
        lanes_are_inputs ? q * (width + kChannelBlock) : q * width + z.w * z.stride_h * x_channels;
    rows = std::clamp<Index>(cache / row, 1, p);
    strips = ceil_div(p, rows);
    rows = ceil_div(p, strips);
    if (strips == 1 && !planes) {
      images = std::clamp<Index>(std::min(cache / (p * row), kSumChain / (p * q)), 1,
                                 std::max<Index>(z.n, 1));
      images = ceil_div(z.n, std::max<Index>(1, ceil_div(z.n, images)));
    }
    units = strips * ceil_div(z.n, std::max<Index>(1, images));
  }

  void cut_channels() {
    if (planes) {  // there are few sums
      row_step = row_blocks;
      lane_step = lane_blocks;
    } else {
      const auto cache = static_cast<Index>(cache_sizes().l2 / sizeof(float) * 3 / 4);
      const Index sums = kChannelBlock * taps * width;  // one block by one block
      const Index strip = kChannelBlock * images * rows * (lanes_are_inputs ? q : z.stride_h * w);
      const Index dy = z.k_per_group() * p * q;
      // A 1x1 kernel with a stride reads only P Q pixels of each channel of x.
      const Index x = z.c_per_group() * (lanes_are_inputs ? p * q : h * w);
      const Index lane_side = lanes_are_inputs ? x : dy, row_side = lanes_are_inputs ? dy : x;
      Index least = 0;
      for (Index part = 1; part <= lane_blocks; ++part) {
        const Index lane = ceil_div(lane_blocks, part);
        const Index fit = cache / (lane * sums + strip);  // blocks of rows
        if ((fit == 0 && lane > 1) || ceil_div(lane_blocks, lane) < part) continue;
        const Index row = even(row_blocks, fit);
        const Index far = row_side * part + lane_side * ceil_div(row_blocks, row);
        if (least == 0 || far < least) {
          least = far;
          lane_step = lane;
          row_step = row;
        }
      }
    }
    // Cuts more parts to keep the threads busy, unless slices of the images provide enough chunks.
    const double flops = z.nominal_flops();
    while ((lane_step > 1 || (row_step > 1 && !planes)) && parts() * most_slices() < kChunks &&
           flops > kChunkFlops * static_cast<double>(2 * parts())) {
      const bool wider = lane_step * width >= row_step * kChannelBlock;
      Index& step = lane_step > 1 && (planes || row_step == 1 || wider) ? lane_step : row_step;
      step = ceil_div(step, 2);
    }
  }

  void cut_slices() {
    const Index columns = std::min<Index>(q, kSumChain);
    const Index chains = images * rows * q <= kSumChain
                             ? 1
                             : images * ceil_div(rows, kSumChain / std::max<Index>(1, columns)) *
                                   ceil_div(q, Index{kSumChain});
    const Index wanted = std::min(ceil_div(kChunks, parts()), most_slices());
    slices = std::clamp<Index>(std::max(wanted, ceil_div(units * chains, Index{kSumChain})), 1,
                               std::max<Index>(units, 1));
  }
  Index most_slices() const {
    const Index sums = z.k * z.c_per_group() * taps;
    return std::max<Index>(1, std::min({units, z.n * p * q / kSlicePixels, kSliceFloats / sums}));
  }
  // Returns the step that cuts `count` into nearly equal parts of at most `most`.
  static Index even(Index count, Index most) {
    return ceil_div(count, ceil_div(count, std::clamp<Index>(most, 1, count)));
  }
};

}  // namespace convscope::direct_nchw16c
