// SPDX-License-Identifier: Apache-2.0
// blocked_weights.cpp: backward_weight in the blocked layout: tiles of input channels x output
// channels stay in registers over rows of pixels; x and dy are read where they lie.
//
// Plan       Strips of rows of dy, and of one block of x, stay in the first cache while all taps
//            (r, s) read them. A tap leaves out the rows and columns that it finds outside the
//            image. weight_sums.h adds up what threads have summed, and turns it into dw.
// Read next  blocked_weight_tiles_simd.cpp, the tiles; weight_sums.h
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
    const Index g = block / plan_.blocks;
    const Index k = plan_.first_kernel(block);
    const Index dy_plane = plan_.p * plan_.q * kChannelBlock;
    const Index x_plane = z_.h * z_.w * kChannelBlock;
    const float* const dy = dy_ +
                            (n * ceil_div(z_.k, kChannelBlock) + k / kChannelBlock) * dy_plane +
                            k % kChannelBlock;
    const float* const x =
        x_ + (n * ceil_div(z_.c, kChannelBlock) + g * z_.c_per_group() / kChannelBlock) * x_plane;
    BlockedWeightTile tile;
    tile.in_row = z_.stride_h * z_.w * kChannelBlock;
    tile.in_step = z_.stride_w * kChannelBlock;
    tile.dy_row = plan_.q * kChannelBlock;
    tile.dy_block = dy_plane;
    tile.sums_row = z_.r * z_.s * plan_.width;
    // Behind the last channel there may be no second block to read.
    const Index width = plan_.kernel_count(block) <= plan_.lanes ? plan_.lanes : plan_.width;
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
