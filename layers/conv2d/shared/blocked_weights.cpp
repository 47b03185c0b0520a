// SPDX-License-Identifier: Apache-2.0
// blocked_weights.cpp: backward_weight in the blocked layout: tiles of input channels x output
// channels stay in registers over rows of pixels; x and dy are read where they lie.
//
// Plan       Strips of rows of dy, and of one block of x, stay in the first cache while all taps
//            (r, s) read them. A tap leaves out the rows and columns that it finds outside the
//            image. weight_sums.h adds up what threads have summed, and turns it into dw.
//            Where x lies [N,C,H,W] and has few channels, the rows r of the kernel that a row of dy
//            finds inside the image fill the tile, too.
// Read next  blocked_weight_tiles_simd.cpp, the tiles; weight_sums.h
#include <array>

#include "layers/conv2d/shared/blocked_pass.h"
#include "layers/conv2d/shared/blocked_plan.h"

namespace convscope::blocked {
namespace {

class WeightGradient {
 public:
  WeightGradient(const WeightPlan& plan, const Conv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        kernels_(blocked_kernels.get()),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        sums_(plan, args) {}

  void run() const {
    sums_.run([&](Index slice, Index block, float* sums, int) {
      for (Index n = slice * z_.n / plan_.slices; n < (slice + 1) * z_.n / plan_.slices; ++n) {
        for (Index p = 0; p < plan_.p; p += plan_.rows) {
          sum_rows(n, block, p, std::min(p + plan_.rows, plan_.p), sums);
        }
      }
    });
  }

 private:
  void sum_rows(Index n, Index block, Index begin, Index end, float* sums) const {
    if (z_.layout == ActivationLayout::blocked_y) {
      sum_rows_of_planes(n, block, begin, end, sums);
      return;
    }
    const Index g = block / plan_.blocks;
    const Index x_plane = z_.h * z_.w * kChannelBlock;
    const float* const dy = dy_of(n, block);
    const float* const x =
        x_ + (n * ceil_div(z_.c, kChannelBlock) + g * z_.c_per_group() / kChannelBlock) * x_plane;
    BlockedWeightTile tile = tile_of_rows(kChannelBlock);
    const Index width = tile_width(block);
    for (Index c = 0; c < z_.c_per_group(); c += kChannelBlock) {
      tile.channels = static_cast<int>(std::min(kChannelBlock, z_.c_per_group() - c));
      for (Index r = 0; r < z_.r; ++r) {
        const Index up = z_.pad_top - r * z_.dilation_h;  // h = p stride - up
        const Index p = std::max(begin, up <= 0 ? 0 : ceil_div(up, z_.stride_h));
        const Index p_end = std::min(end, floor_div(z_.h - 1 + up, z_.stride_h) + 1);
        if (p >= p_end) continue;
        for (Index s = 0; s < z_.s; ++s) {
          const Index left = z_.pad_left - s * z_.dilation_w;
          const Index q = left <= 0 ? 0 : ceil_div(left, z_.stride_w);
          const Index q_end = std::min(plan_.q, floor_div(z_.w - 1 + left, z_.stride_w) + 1);
          if (q >= q_end) continue;
          tile.rows = p_end - p;
          tile.columns = q_end - q;
          tile.in = x + c / kChannelBlock * x_plane +
                    ((p * z_.stride_h - up) * z_.w + q * z_.stride_w - left) * kChannelBlock;
          tile.dy = dy + (p * plan_.q + q) * kChannelBlock;
          tile.sums = sums + (c * z_.r * z_.s + r * z_.s + s) * plan_.width;
          kernels_.weight_tile(tile, static_cast<int>(width));
        }
      }
    }
  }

  // Runs of rows of dy that find the same rows r of the kernel inside the image.
  void sum_rows_of_planes(Index n, Index block, Index begin, Index end, float* sums) const {
    const auto first_row = [&](Index p) {  // the first r that p finds inside
      return std::clamp<Index>(ceil_div(z_.pad_top - p * z_.stride_h, z_.dilation_h), 0, z_.r);
    };
    const auto end_row = [&](Index p) {
      const Index room = z_.h - 1 + z_.pad_top - p * z_.stride_h;
      return room < 0 ? 0 : std::min(z_.r, room / z_.dilation_h + 1);
    };
    for (Index p = begin; p < end;) {
      const Index r = first_row(p), r_end = end_row(p);
      Index p_end = p + 1;
      while (p_end < end && first_row(p_end) == r && end_row(p_end) == r_end) ++p_end;
      if (r < r_end) sum_run(n, block, {.p = p, .p_end = p_end, .r = r, .r_end = r_end}, sums);
      p = p_end;
    }
  }

  struct Run {
    Index p, p_end, r, r_end;
  };
  void sum_run(Index n, Index block, const Run& run, float* sums) const {
    BlockedWeightTile tile = tile_of_rows(1);
    std::array<BlockedWeightRow, kChannelBlock> rows;
    tile.row = rows.data();
    tile.rows = run.p_end - run.p;
    const Index plane = z_.h * z_.w;
    tile.in = x_ + (n * z_.c + block / plan_.blocks * z_.c_per_group()) * plane;
    const float* const dy = dy_of(n, block) + run.p * plan_.q * kChannelBlock;
    const int width = static_cast<int>(tile_width(block));
    const Index high = run.r_end - run.r;
    for (Index s = 0; s < z_.s; ++s) {
      const Index left = z_.pad_left - s * z_.dilation_w;
      const Index q = left <= 0 ? 0 : ceil_div(left, z_.stride_w);
      const Index q_end = std::min(plan_.q, floor_div(z_.w - 1 + left, z_.stride_w) + 1);
      if (q >= q_end) continue;
      tile.columns = q_end - q;
      tile.dy = dy + q * kChannelBlock;
      tile.sums = sums + s * plan_.width;
      for (Index i = 0; i < z_.c_per_group() * high; i += tile.channels) {  // i = c high + r
        tile.channels = static_cast<int>(std::min(kChannelBlock, z_.c_per_group() * high - i));
        for (int t = 0; t < tile.channels; ++t) {
          const Index c = (i + t) / high, r = run.r + (i + t) % high;
          const Index h = run.p * z_.stride_h - z_.pad_top + r * z_.dilation_h;
          rows[static_cast<std::size_t>(t)] = {.in = c * plane + h * z_.w + q * z_.stride_w - left,
                                               .sums = (c * z_.r + r) * tile.sums_row};
        }
        kernels_.weight_tile(tile, width);
      }
    }
  }

  const float* dy_of(Index n, Index block) const {
    const Index k = plan_.first_kernel(block);
    return dy_ +
           (n * ceil_div(z_.k, kChannelBlock) + k / kChannelBlock) * plan_.p * plan_.q *
               kChannelBlock +
           k % kChannelBlock;
  }
  // What every tile has; `pixel`: floats of a pixel of x.
  BlockedWeightTile tile_of_rows(Index pixel) const {
    BlockedWeightTile tile;
    tile.in_row = z_.stride_h * z_.w * pixel;
    tile.in_step = z_.stride_w * pixel;
    tile.dy_row = plan_.q * kChannelBlock;
    tile.dy_block = plan_.p * plan_.q * kChannelBlock;
    tile.sums_row = (pixel == 1 ? z_.s : z_.r * z_.s) * plan_.width;
    return tile;
  }
  // Behind the last channel there may be no second block to read.
  Index tile_width(Index block) const {
    return plan_.kernel_count(block) <= plan_.lanes ? plan_.lanes : plan_.width;
  }

  const WeightPlan& plan_;
  const Conv2dProblem& z_;
  const BlockedKernels kernels_;
  const float* const x_;
  const float* const dy_;
  const WeightSums sums_;
};

}  // namespace

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  return static_cast<std::size_t>(WeightPlan(problem).sums_floats()) * sizeof(float);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const WeightPlan plan(args.problem);
  WeightGradient(plan, args).run();
}

}  // namespace convscope::blocked
