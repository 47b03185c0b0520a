// SPDX-License-Identifier: Apache-2.0
// direct_small_groups_weights.cpp: backward_weight of small groups in NCHW16c.
//
// Method     A strip is some rows of dy of one image and block of channels, and the rows of x that
//            these rows read. A strip is one chain of pixels, or less if a chain exceeds three
//            quarters of L1, because all rows of the kernel and all vectors of a block read the
//            strip again. Three taps of a row on neighbouring columns are computed together, other
//            taps one by one. A slice is a range of strips with separate accumulators [R,M,S,16].
//            Slices are added up in order, so dw has the same bits for any number of threads.
//            Threads take (slice, block).
// Cost       FLOPs = 2 N K P Q M R S; bytes = x and dy once; workspace = dw for each slice
// Choices    A slice adds at most kSumChain chains to each accumulator (sum_chain.h). There are
//            enough slices that blocks x slices is at least kChunks.
// Read next  direct_small_groups_weight_simd.cpp, the tiles
#include "layers/conv2d/direct_small_groups/cpu/direct_small_groups_weights.h"

#include <algorithm>

#include "framework/int_math.h"
#include "framework/machine/cache_sizes.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/direct_small_groups/cpu/direct_small_groups_tiles.h"

namespace convscope {

constinit IsaTable<GroupWeightKernels> group_weight_kernels;

namespace direct_small_groups {
namespace {

using Index = std::int64_t;

constexpr Index kChunks = 16;
constexpr double kChunkFlops = 2e5;

struct GroupWeightTiling {
  explicit GroupWeightTiling(const Conv2dProblem& problem)
      : z(problem),
        group(z.c_per_group()),
        blocks(ceil_div(z.c, kChannelBlock)),
        p(z.p()),
        q(z.q()),
        lanes(group_weight_kernels.get().lanes) {
    const Index row = (q + z.w * z.stride_h) * kChannelBlock * Index{sizeof(float)};
    const Index chain = std::max<Index>(1, kSumChain / q);  // rows
    const Index fit = static_cast<Index>(cache_sizes().l1) * 3 / 4 / row;
    rows = std::clamp<Index>(std::min(chain, fit), 1, p);
    rows = ceil_div(p, ceil_div(p, rows));
    strips_of_image = ceil_div(p, rows);
    strips = z.n * strips_of_image;
    const Index totals = ceil_div(q, Index{kSumChain});
    const double flops = z.nominal_flops() / static_cast<double>(blocks);
    const Index wanted =
        std::min(ceil_div(kChunks, blocks), static_cast<Index>(flops / kChunkFlops));
    slices =
        std::clamp<Index>(std::max(wanted, ceil_div(strips * totals, Index{kSumChain})), 1, strips);
  }
  Index sums_floats() const { return z.r * z.s * group * kChannelBlock; }

  const Conv2dProblem& z;
  Index group, blocks, p, q, lanes;
  Index rows = 1;                                     // rows of a strip
  Index strips_of_image = 1, strips = 1, slices = 1;  // counts for a block of channels
};

class WeightGradient {
 public:
  WeightGradient(const GroupWeightTiling& plan, const Conv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        kernels_(group_weight_kernels.get()),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        dw_(static_cast<float*>(args.dw)),
        accumulate_(args.accumulate),
        far_(static_cast<std::size_t>(z_.n * plan.blocks * (z_.h * z_.w + plan.p * plan.q) *
                                      kChannelBlock) *
                 sizeof(float) >
             cache_sizes().l2),
        sums_(static_cast<float*>(args.workspace)) {}

  void run() const {
    const Index jobs = plan_.blocks * plan_.slices;
    const double flops = z_.nominal_flops() / static_cast<double>(jobs);
    const auto grain = static_cast<Index>(kChunkFlops / flops) + 1;
    parallel_for(jobs, grain, [&](Index job, Index end) {
      for (; job < end; ++job) {
        const Index slice = job / plan_.blocks, block = job % plan_.blocks;
        float* const sums = sums_ + job * plan_.sums_floats();
        std::fill_n(sums, plan_.sums_floats(), 0.0f);
        const Index last = (slice + 1) * plan_.strips / plan_.slices;
        for (Index strip = slice * plan_.strips / plan_.slices; strip < last; ++strip) {
          add_strip(strip, block, sums);
        }
        if (plan_.slices == 1) write(block);
      }
    });
    if (plan_.slices == 1) return;
    parallel_for(plan_.blocks, std::max<Index>(1, 16384 / plan_.sums_floats()),
                 [&](Index block, Index end) {
                   for (; block < end; ++block) write(block);
                 });
  }

 private:
  void add_strip(Index strip, Index block, float* sums) const {
    const Index plane = strip / plan_.strips_of_image * plan_.blocks + block;
    const float* const x = x_ + plane * z_.h * z_.w * kChannelBlock;
    const float* const dy = dy_ + plane * plan_.p * plan_.q * kChannelBlock;
    const Index begin = strip % plan_.strips_of_image * plan_.rows;
    const Index end = std::min(begin + plan_.rows, plan_.p);
    GroupWeightTile tile;
    tile.channels = static_cast<int>(plan_.group);
    tile.in_row = z_.stride_h * z_.w * kChannelBlock;
    tile.in_step = z_.stride_w * kChannelBlock;
    tile.dy_row = plan_.q * kChannelBlock;
    tile.sums_step = z_.s * kChannelBlock;
    tile.sums_tap = kChannelBlock;
    const bool near = z_.s == 3 && z_.dilation_w == 1 && z_.stride_w <= 2;
    for (Index r = 0; r < z_.r; ++r) {
      const Index up = z_.pad_top - r * z_.dilation_h;  // h = p stride - up
      const Index p = std::max(begin, up <= 0 ? 0 : ceil_div(up, z_.stride_h));
      const Index p_end = std::min(end, floor_div(z_.h - 1 + up, z_.stride_h) + 1);
      if (p >= p_end) continue;
      tile.rows = p_end - p;
      tile.in = x + (p * z_.stride_h - up) * z_.w * kChannelBlock;
      tile.dy = dy + p * plan_.q * kChannelBlock;
      tile.sums = sums + r * plan_.group * tile.sums_step;
      if (near) {
        if (far_ && r >= z_.r - z_.stride_h) {  // only rows that no earlier row of the kernel has
                                                // read
          tile.in_ahead = plan_.rows * tile.in_row;
          tile.dy_ahead = plan_.rows * tile.dy_row;
        }
        tile.first = z_.pad_left;
        tile.end = z_.pad_left + z_.w;
        const auto form = z_.stride_w == 1 ? GroupForm::triple : GroupForm::triple_by_two;
        add_columns(tile, form, 0, 0, plan_.q);
        continue;
      }
      for (Index s = 0; s < z_.s; ++s) {
        const Index left = z_.pad_left - s * z_.dilation_w;
        const Index q = left <= 0 ? 0 : ceil_div(left, z_.stride_w);
        const Index q_end = std::min(plan_.q, floor_div(z_.w - 1 + left, z_.stride_w) + 1);
        if (q < q_end) add_columns(tile, GroupForm::single, s, q, q_end);
      }
    }
  }

  // Adds the products of pixels [q, end) of each row. The pointers in `rows` are at column 0, and s
  // is the first tap of the run.
  void add_columns(const GroupWeightTile& rows, GroupForm form, Index s, Index q, Index end) const {
    GroupWeightTile tile = rows;
    tile.columns = end - q;
    const Index column = q * z_.stride_w - z_.pad_left + s * z_.dilation_w;
    for (Index lane = 0; lane < kChannelBlock; lane += plan_.lanes) {
      tile.in = rows.in + column * kChannelBlock +
                (plan_.group < plan_.lanes ? lane : lane - lane % plan_.group);
      tile.dy = rows.dy + q * kChannelBlock + lane;
      tile.sums = rows.sums + s * tile.sums_tap + lane;
      kernels_.tile(tile, form);
    }
  }

  // Writes dw of a block of channels: adds up the results of all slices, in order.
  void write(Index block) const {
    const Index floats = plan_.sums_floats(), m = plan_.group, taps = z_.r * z_.s;
    float* const total = sums_ + block * floats;
    for (Index slice = 1; slice < plan_.slices; ++slice) {
      const float* const more = total + slice * plan_.blocks * floats;
      for (Index i = 0; i < floats; ++i) total[i] += more[i];
    }
    const Index count = std::min(kChannelBlock, z_.c - block * kChannelBlock);
    for (Index l = 0; l < count; ++l) {
      for (Index d = 0; d < m; ++d) {
        const Index c = m < plan_.lanes ? l % m ^ d : d;
        float* const to = dw_ + ((block * kChannelBlock + l) * m + c) * taps;
        for (Index r = 0; r < z_.r; ++r) {
          const float* const from = total + (r * m + d) * z_.s * kChannelBlock + l;
          for (Index s = 0; s < z_.s; ++s) {
            float& weight = to[r * z_.s + s];
            weight = from[s * kChannelBlock] + (accumulate_ ? weight : 0.0f);
          }
        }
      }
    }
  }

  const GroupWeightTiling& plan_;
  const Conv2dProblem& z_;
  const GroupWeightKernels kernels_;
  const float* const x_;
  const float* const dy_;
  float* const dw_;
  const bool accumulate_;
  const bool far_;     // x is not in L2: the next strip is prefetched
  float* const sums_;  // [slices, blocks, R, M, S, 16]
};

}  // namespace

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  const GroupWeightTiling plan(problem);
  return static_cast<std::size_t>(plan.slices * plan.blocks * plan.sums_floats()) * sizeof(float);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const GroupWeightTiling plan(args.problem);
  WeightGradient(plan, args).run();
}

}  // namespace direct_small_groups
}  // namespace convscope
