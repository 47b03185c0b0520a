// SPDX-License-Identifier: Apache-2.0
// activation_op.h: a curve applied to every element, in a planned step. Others absorb it: a
// convolution that ends in a ReLU applies it to its sums before it stores them.
#pragma once

#include <limits>
#include <optional>

#include "layers/plan/plan_builder.h"

namespace convscope {

class CONVSCOPE_API ActivationOp final : public PlanOp {
 public:
  enum class Curve { relu, relu6, tanh, sigmoid };
  explicit ActivationOp(Curve curve) : curve_(curve) {}
  Curve curve() const { return curve_; }
  std::string text() const override;
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder& builder) override;
  std::optional<double> layout_ms(const PlanGraph& graph, ActivationLayout layout) const override;

 private:
  Curve curve_;
};

// True when `op` is a ReLU.
CONVSCOPE_API bool is_relu(const PlanOp& op);

// The upper bound of a ReLU: infinity of relu, 6 of relu6. Nothing: `op` is none.
CONVSCOPE_API std::optional<float> relu_bound(const PlanOp& op);
// The same of one that kernels of convolution and batch norm may take over. On a GPU they know relu
// alone.
CONVSCOPE_API std::optional<float> fused_relu_bound(const PlanGraph& graph, const PlanOp& op);
// " + relu", " + relu6": what text() adds for a ReLU that was taken over.
CONVSCOPE_API std::string fused_relu_text(float most);

// For operations that have absorbed a ReLU: y = max(y, 0) in place, and dy := dy where 0 < y <
// most.
CONVSCOPE_API void emit_relu(PlanBuilder& builder, ValueId y);
CONVSCOPE_API void emit_relu_gradient(PlanBuilder& builder, ValueId y,
                                      float most = std::numeric_limits<float>::infinity());

}  // namespace convscope
