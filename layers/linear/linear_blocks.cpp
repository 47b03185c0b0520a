// SPDX-License-Identifier: Apache-2.0
// linear_blocks.cpp: decides which directions of a pruned linear layer a compiled step computes
// from blocks.
#include "layers/linear/linear_blocks.h"

namespace convscope {
namespace {

// The cost of the dense product (framework/ops/gemm), which is not a registered algorithm. The
// dense product packs w in each call, also in inference. forward transposes w in 0.45 cycles for
// each float. backward_data copies w only if its rows are long (far apart in memory) and the batch
// is large; the copy takes 0.6 cycles for each float. The constants fit measurements of layers of
// 128 to 25088 inputs at batches of 1 to 512. If w comes from memory, the product takes up to 1.5
// times as long as estimated. On a GPU nothing was measured. There the dense product is assumed to
// be near the peak, so blocks are chosen only where they are clearly faster.
Cost dense_cost(const Conv2dProblem& z, Direction direction, DeviceType device) {
  Cost out{.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .peak_share = 0.95};
  if (device != DeviceType::cpu) return out;
  constexpr std::int64_t kFarRow = 1024, kManyImages = 28;
  const bool copies = z.c > kFarRow && z.n > kManyImages;
  const double packed = direction == Direction::forward                   ? 0.45
                        : direction == Direction::backward_data && copies ? 0.6
                                                                          : 0;
  out.peak_share = share_with_overhead(out.flops, out.peak_share,
                                       300 + packed * static_cast<double>(z.w_shape().numel()));
  return out;
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
    const double dense_ms =
        estimated_ms(dense_cost(problem_, direction, device), device, problem_.dtype);
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
