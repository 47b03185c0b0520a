// SPDX-License-Identifier: Apache-2.0
// layout_op.h: the copy of a value into another layout or type in a planned step, and of its
// gradient back.
#pragma once

#include "layers/plan/plan_builder.h"

namespace convscope {

// Its input and its output are one value in two layouts (PlanGraph::add_stored), or in f32
// [N,C,H,W] and in halves or f32 with their channels last.
class CONVSCOPE_API LayoutOp final : public PlanOp {
 public:
  explicit LayoutOp(ActivationLayout to, DType type = DType::f32) : to_(to), type_(type) {}
  std::string text() const override;
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder& builder) override;
  int conversions() const override { return conversions_; }

 private:
  ActivationLayout to_;
  DType type_;
  int conversions_ = 0;
};

// What the copies of `value` into another layout take in one step, with those of its gradient.
CONVSCOPE_API double conversion_ms(const PlanGraph& graph, ValueId value,
                                   ActivationLayout layout = ActivationLayout::blocked);
// What a pass takes that makes factors of an f32 image with its channels last, or of its gradient
// (PlanBuilder::make_factors).
CONVSCOPE_API double factors_ms(const PlanGraph& graph, ValueId value);
// It and [N,C,H,W] put the elements into the same order: one pixel, whole blocks.
CONVSCOPE_API bool has_one_order(const Shape& images,
                                 ActivationLayout layout = ActivationLayout::blocked);

}  // namespace convscope
