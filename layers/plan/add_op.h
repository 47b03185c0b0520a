// SPDX-License-Identifier: Apache-2.0
// add_op.h: y = a + b in a compiled step, where a and b have the same shape: the sum of a residual
// block.
#pragma once

#include "framework/graph/emitter.h"

namespace convscope {

class CONVSCOPE_API AddOp final : public PlanOp {
 public:
  std::string text() const override { return "add"; }
  void forward(Emitter& builder) override;
  void backward(Emitter& builder) override;
  std::optional<double> layout_ms(const Graph&, ActivationLayout layout) const override {
    return same_in_both(layout);
  }
};

// Adds the gradient of `output` to that of `value`. The gradient of `output` does not change.
CONVSCOPE_API void copy_gradient(Emitter& builder, ValueId output, ValueId value);

}  // namespace convscope
