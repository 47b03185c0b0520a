// SPDX-License-Identifier: Apache-2.0
// activation_op.h: an elementwise activation in a compiled step. Other operations absorb an
// activation: a convolution followed by a ReLU applies the ReLU to its accumulators before storing
// them.
#pragma once

#include <limits>
#include <optional>

#include "framework/graph/emitter.h"

namespace convscope {

class CONVSCOPE_API ActivationOp final : public PlanOp {
 public:
  enum class Function { relu, relu6, tanh, sigmoid };
  explicit ActivationOp(Function function) : function_(function) {}
  Function function() const { return function_; }
  std::string text() const override;
  void forward(Emitter& builder) override;
  void backward(Emitter& builder) override;
  std::optional<double> layout_ms(const Graph& graph, ActivationLayout layout) const override;

 private:
  Function function_;
};

// Returns whether `op` is a ReLU.
CONVSCOPE_API bool is_relu(const PlanOp& op);

// Returns the upper bound of a ReLU: infinity for relu, 6 for relu6; nothing for other operations.
CONVSCOPE_API std::optional<float> relu_bound(const PlanOp& op);
// Returns the bound of a ReLU that kernels of convolution and batch norm may absorb, else nothing.
// On a GPU these kernels support relu only.
CONVSCOPE_API std::optional<float> fused_relu_bound(const Graph& graph, const PlanOp& op);
// Returns " + relu" or " + relu6", which text() appends for an absorbed ReLU.
CONVSCOPE_API std::string fused_relu_text(float most);

// Emits the work of an absorbed ReLU: y = max(y, 0) in place, and dy = dy where 0 < y < most, else
// 0.
CONVSCOPE_API void emit_relu(Emitter& builder, ValueId y);
CONVSCOPE_API void emit_relu_gradient(Emitter& builder, ValueId y,
                                      float most = std::numeric_limits<float>::infinity());

}  // namespace convscope
