// SPDX-License-Identifier: Apache-2.0
// linear_blocks.cpp: decides which directions of a pruned linear layer a compiled step computes
// from blocks.
#include "layers/linear/linear_blocks.h"

namespace convscope {
namespace {

// The counts of the dense product (framework/ops/gemm), which is not a registered algorithm. It
// packs w in each call, also in inference: forward transposes w, and backward_data copies w if its
// rows are long (far apart in memory) and the batch is large. On a GPU nothing was measured. There
// the dense product is assumed to be at the peak, so blocks are chosen only where they are clearly
// faster.
double dense_ms_of(const Conv2dProblem& z, Direction direction, DeviceType device) {
  constexpr std::int64_t kFarRow = 1024, kManyImages = 28;
  const bool copies = z.c > kFarRow && z.n > kManyImages;
  const double w = number(z.w_shape().numel());
  const Cost cost{.flops = z.nominal_flops(),
                  .bytes = z.nominal_bytes(),
                  .issued = z.nominal_flops(),
                  .copied = direction == Direction::backward_data && copies ? w : 0,
                  .transposed = direction == Direction::forward ? w : 0};
  return estimated_ms({"linear", "gemm", direction}, cost, device, z.dtype);
}

bool is_asked(const Graph& graph, ValueId x, ValueId w, Direction direction) {
  return direction == Direction::forward ||
         (graph.training() && graph.wants_gradient(direction == Direction::backward_data ? x : w));
}

}  // namespace

LinearBlocks::LinearBlocks(Graph& graph, ValueId x, ValueId w, MathMode math)
    : sparse_(graph.desc(w).kept) {
  const DeviceType device = graph.device().type;
  problem_.n = graph.shape(x)[0];
  problem_.c = graph.shape(x)[1];
  problem_.k = graph.shape(w)[0];
  problem_.math = math;
  if (problem_.is_empty()) return;
  plan_with_mask(graph, sparse_);
  const WeightUse use = graph.training() ? WeightUse::once : WeightUse::often;
  for (const Direction direction : kDirections) {
    if (!is_asked(graph, x, w, direction)) continue;
    const double dense_ms = dense_ms_of(problem_, direction, device);
    forms_[static_cast<std::size_t>(direction)] =
        sparse_form(*sparse_, problem_, direction, graph.device(), use, dense_ms);
  }
}

Conv2dWork LinearBlocks::work(Direction direction) const {
  Conv2dWork out{{form(direction).algorithm, nullptr}, problem_, direction, sparse_};
  out.problem.weight_format = sparse_->format();
  return out;
}

}  // namespace convscope
