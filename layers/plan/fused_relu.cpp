// SPDX-License-Identifier: Apache-2.0
// fused_relu.cpp: a ReLU, with or without an upper bound, in the kernel of the operation before it.
#include "layers/plan/fused_relu.h"

#include <cmath>

#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/elementwise.h"

namespace convscope {

bool is_relu(const Operation& op) { return op.kind() == "relu"; }

std::optional<float> relu_bound(const Operation& op) {
  if (is_relu(op)) return std::numeric_limits<float>::infinity();
  if (op.kind() == "relu6") return kRelu6Bound;
  return std::nullopt;
}

std::optional<float> fused_relu_bound(const Graph& graph, const Operation& op) {
  const auto most = relu_bound(op);
  if (!most || (std::isfinite(*most) && graph.device().type != DeviceType::cpu)) {
    return std::nullopt;
  }
  return most;
}

bool adds_residual(const Graph& graph, const Operation& op) {
  return op.kind() == "add" && op.inputs[0] != op.inputs[1] &&
         graph.shape(op.inputs[0]) == graph.shape(op.inputs[1]);
}

std::string fused_relu_text(float most) {
  return std::isinf(most) ? " + relu" : cat(" + relu", most);
}

void emit_relu_gradient(Emitter& emitter, ValueId value, float most) {
  if (!std::isinf(most)) {
    return emit_bounded_relu_gradient(emitter, value, most, emitter.gradient(value));
  }
  emitter.call([run = gradient_kernel.get(emitter.device()), y = emitter.value(value),
                dy = emitter.gradient(value)] { run(GradientOp::relu, y, dy, dy); });
}

}  // namespace convscope
