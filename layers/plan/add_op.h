// SPDX-License-Identifier: Apache-2.0
// add_op.h: y = a + b in a compiled step, where a and b have the same shape: the sum of a residual
// block.
#pragma once

#include "layers/plan/plan_builder.h"

namespace convscope {

class CONVSCOPE_API AddOp final : public PlanOp {
 public:
  std::string text() const override { return "add"; }
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder& builder) override;
  std::optional<double> layout_ms(const PlanGraph&, ActivationLayout layout) const override {
    return same_in_both(layout);
  }
};

// Adds the gradient of `output` to that of `value`. The gradient of `output` does not change.
CONVSCOPE_API void copy_gradient(PlanBuilder& builder, ValueId output, ValueId value);

}  // namespace convscope
