// SPDX-License-Identifier: Apache-2.0
// direct_sample_cuda.cu: direct convolution of small images of few channels on a GPU: a block of
// threads keeps a whole sample and all weights in shared memory.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//            x[n, c, p - pad_top + r, q - pad_left + s] w[k,c,r,s]
// Textbook   for n:                                            # one block
//              copy x[n] and w to shared memory
//              for k, p, q: y[n,k,p,q] = b[k]; for c, r, s: += x[n,c,p+r-pad,q+s-pad] w[k,c,r,s]
// Method     Schedule of direct: the loop nest of direct_lesson_cpu.cpp. The kernels are those of
//            the fused layers of a LeNet (../../shared/few_channel_conv.h), here with one stage
//            without pooling: few_channel_conv_forward_cuda.cu and
//            few_channel_conv_backward_cuda.cu describe the tiles. They also split a sample's
//            outputs among blocks when there are few samples. A residual is added in a second pass,
//            so that y has the same bits with and without it.
// Shapes     x [N,C,H,W], w [K,C,R,R], y [N,K,P,Q], row-major, any alignment, f32, f32 accumulators
// Supports   f32; kernels of 3x3, 5x5 and 7x7; stride 1, no dilation, one group; at most 16
//            channels, 32 kernels and 1024 pixels of y; padding below the kernel's size; a sample
//            that fits into the shared memory of a block
// Cost       FLOPs = 2 N K P Q C R^2; bytes = every tensor once; workspace of backward_weight =
//            sums of up to 264 blocks. Compute-bound from about one sample for each SM on
// Numerics   sums of C R^2 products, in at most C pieces; dw in one piece for each block, added in
//            order. The order depends only on the sizes: same bits on each run. Exact on integers
// Backward   dx assigned; dw assigned or added to
// Choices    at most 1024 pixels, 16 channels and 32 kernels: larger samples leave too few blocks
//            for an SM. Tiles: see the two kernel files
// Source     Y. LeCun et al.: Gradient-Based Learning Applied to Document Recognition, 1998 (the
//            layers); own work (the kernels)
// Read next  ../../direct/direct_lesson_cpu.cpp, the loop nest;
//            ../../shared/few_channel_conv_forward_cuda.cu, the kernel; ../../fusions/README.md,
//            the same kernels with activation and pooling
#include <algorithm>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/shared/cuda/direct_shape.h"
#include "layers/conv2d/shared/few_channel_conv.h"

namespace convscope {
namespace {

using Index = std::int64_t;

__global__ void add_residual_kernel(Index count, const float* residual, bool relu, float* y) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    y[i] = finished(y[i], residual, i, relu);
  }
}

// Describes the problem as one stage without pooling, which is the argument of the kernels with one
// block per sample (few_channel_conv.h).
FewChannelStage stage_of(const Conv2dProblem& z, bool relu) {
  const DirectShape s(z);
  return {.c = s.c,
          .h = s.h,
          .w = s.w,
          .k = s.k,
          .r = s.r,
          .pad_top = s.pad_top,
          .pad_left = s.pad_left,
          .p = s.p,
          .q = s.q,
          .activation = relu ? FewChannelActivation::relu : FewChannelActivation::none,
          .max_pool = false};
}

// ---- launchers ----------------------------------------------------------------------------------

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const auto* const residual = static_cast<const float*>(args.epilogue.residual);
  const bool relu = args.epilogue.relu;
  auto* const y = static_cast<float*>(args.y);
  // The same kernel runs with and without a residual, so that both give the same bits.
  FewChannelForward small;
  small.stage[0] = stage_of(problem, relu && residual == nullptr);
  small.batch = problem.n;
  small.x = static_cast<const float*>(args.x);
  small.w[0] = static_cast<const float*>(args.w);
  small.b[0] = static_cast<const float*>(args.b);
  small.y[0] = y;
  few_channel_forward_kernel.get({DeviceType::cuda})(small);
  if (residual == nullptr) return;
  const Index elements = problem.y_shape().numel();
  launch(add_residual_kernel, grid_for(elements), elements, residual, relu, y);
}

FewChannelBackward small_backward(const Conv2dProblem& problem) {
  FewChannelBackward small;
  small.stage[0] = stage_of(problem, false);
  small.batch = problem.n;
  return small;
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  FewChannelBackward small = small_backward(args.problem);
  small.w[0] = static_cast<const float*>(args.w);
  small.dy = static_cast<const float*>(args.dy);
  small.dx = static_cast<float*>(args.dx);
  few_channel_backward_kernel.get({DeviceType::cuda})(small);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  FewChannelBackward small = small_backward(args.problem);
  small.x = static_cast<const float*>(args.x);
  small.dy = static_cast<const float*>(args.dy);
  small.dw[0] = static_cast<float*>(args.dw);
  small.accumulate[0] = args.accumulate;
  small.sums = static_cast<float*>(args.workspace);
  few_channel_backward_kernel.get({DeviceType::cuda})(small);
}

// ---- algorithm ----------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  const Conv2dSupport direct = direct_support(z);
  if (!direct.yes) return direct;
  if (!has_register_tiles(z) || z.stride_h != 1) {
    return no("expects a kernel of 3x3, 5x5 or 7x7, stride 1, dilation 1 and groups 1");
  }
  if (z.p() * z.q() > 1024 || z.c > 16 || z.k > 32) {
    return no("expects at most 16 channels, 32 kernels and 1024 pixels of y, got ", z.c, ", ", z.k,
              " and ", z.p() * z.q());
  }
  if (z.pad_bottom >= z.r || z.pad_right >= z.s) {
    return no("expects padding below the kernel's size");
  }
  const FewChannelStage stage = stage_of(z, false);
  const char* const refusal =
      few_channel_refusal(&stage, 1, direction == Direction::backward_data);
  return *refusal == '\0' ? Conv2dSupport{} : no(refusal);
}

const char* schedule_of(const FewChannelStage& stage) {
  return stage.r == 3 ? "3x3" : stage.r == 5 ? "5x5" : "7x7";
}

// How a thread works through its items for one group of samples.
struct ItemCounts {
  double chain = 0;  // steps one after another, each with a channel or a group of four pixels
  double step_flops = 0;
};
ItemCounts tile_counts(const few_channel::Deal& deal, int depth, int channels, int r) {
  const double items = ceil_div(deal.items() * deal.splits, few_channel::kBlockThreads);
  return {.chain = items * ceil_div(depth, deal.splits),
          .step_flops =
              2.0 * few_channel::kTileRows * few_channel::kTileColumns * channels * r * r};
}
ItemCounts weight_counts(const few_channel::Deal& deal, int samples, int r) {
  return {.chain = static_cast<double>(samples) * ceil_div(deal.tiles, deal.splits),
          .step_flops = 2.0 * few_channel::kTileColumns * few_channel::kWeightChannels * r};
}

// Counts `blocks` blocks with `rounds` groups of samples each. A group loads `floats` into shared
// memory; a block loads `first_floats` once.
void count_blocks(Conv2dCost& cost, double blocks, double rounds, double first_floats,
                  double floats, const ItemCounts& items) {
  cost.blocks = blocks;
  cost.chain = rounds * items.chain;
  cost.issued = blocks * few_channel::kBlockThreads * cost.chain * items.step_flops;
  cost.cached = 4 * blocks * (first_floats + rounds * floats);
  cost.copies = (first_floats + rounds * floats) / few_channel::kBlockThreads;
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const FewChannelStage stage = stage_of(z, false);
  const Index batch = std::max<Index>(1, z.n);
  const double weights = stage.weights(), images = stage.c * stage.h * stage.w;
  Conv2dCost cost{.flops = z.nominal_flops(),
                  .bytes = z.nominal_bytes(),
                  .schedule = schedule_of(stage),
                  .resident = 2};
  if (direction == Direction::forward) {
    FewChannelForward small;
    small.stage[0] = stage;
    small.batch = batch;
    const FewChannelForwardPlan plan =
        few_channel_plan(small, few_channel_forward_parts(batch, stage, 1));
    const few_channel::Deal& deal = plan.deal[0];
    const Index groups = ceil_div(batch, Index{plan.samples});
    const Index at_once =
        std::min<Index>(groups, std::max(1, few_channel::kMaxBlocks / plan.parts));
    const double rounds = number(ceil_div(groups, at_once));
    count_blocks(cost, number(at_once * plan.parts), rounds, weights, images * plan.samples,
                 tile_counts(deal, stage.c, few_channel::kForwardChannels, stage.r));
    cost.waits = rounds * (deal.splits - 1);
    cost.stored = number(z.y_shape().numel());
    return cost;
  }
  const bool weight = direction == Direction::backward_weight;
  FewChannelBackward small = small_backward(z);
  small.batch = batch;
  float some = 0;
  if (!weight) small.dx = &some;  // only tells that dx is computed
  const FewChannelBackwardPlan plan =
      few_channel_plan(small, few_channel_backward_parts(&stage, 1, batch));
  const few_channel::Deal& deal = weight ? plan.weight[0] : plan.data;
  const double rounds =
      number(ceil_div(batch, Index{plan.chunks} * plan.samples));
  const double floats = plan.samples * (stage.outputs() + (weight ? images / plan.parts : 0));
  count_blocks(cost, plan.chunks * plan.parts, rounds, weight ? 0 : weights / plan.parts, floats,
               weight ? weight_counts(deal, plan.samples, stage.r)
                      : tile_counts(deal, stage.k, plan.channels, stage.r));
  cost.waits = (weight ? 1 : rounds) * (deal.splits - 1);
  if (weight) {
    const double sums = 4 * number(plan.piece);
    cost.waits += ceil_div(plan.chunks, 32);  // 32 warps add the chunks
    cost.pass_bytes = sums * (2 * plan.chunks + 1);
    cost.launches = 2;
  } else {
    cost.stored = number(z.x_shape().numel());
  }
  return cost;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  const FewChannelStage stage = stage_of(z, false);
  const Index floats = few_channel_chunks(z.n) * few_channel_piece_floats(&stage, 1);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "direct_sample",
    .device = DeviceType::cuda,
    .idea = "small images of few channels: a block keeps a sample and all weights in shared memory",
    .paper = "LeCun et al. 1998: Gradient-Based Learning Applied to Document Recognition",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
