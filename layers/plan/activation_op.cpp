// SPDX-License-Identifier: Apache-2.0
// activation_op.cpp: a curve applied to every element, in a planned step.
#include "layers/plan/activation_op.h"

#include "framework/ops/elementwise.h"

namespace convscope {
namespace {

struct Functions {
  const char* name;
  UnaryOp forward;
  GradientOp gradient;
};
Functions functions_of(ActivationOp::Curve curve) {
  switch (curve) {
    case ActivationOp::Curve::tanh:
      return {"tanh", UnaryOp::tanh, GradientOp::tanh};
    case ActivationOp::Curve::sigmoid:
      return {"sigmoid", UnaryOp::sigmoid, GradientOp::sigmoid};
    case ActivationOp::Curve::relu:
      break;
  }
  return {"relu", UnaryOp::relu, GradientOp::relu};
}

}  // namespace

std::string ActivationOp::text() const { return functions_of(curve_).name; }

// In the blocked layout the lanes behind the last channel must stay 0.
std::optional<double> ActivationOp::layout_ms(const PlanGraph& graph,
                                              ActivationLayout layout) const {
  const bool keeps_zero = curve_ != Curve::sigmoid;
  return keeps_zero ? same_in_both(layout) : PlanOp::layout_ms(graph, layout);
}

void ActivationOp::forward(PlanBuilder& builder) {
  builder.call([run = unary_kernel.get(builder.device()), op = functions_of(curve_).forward,
                x = builder.value(inputs[0]), y = builder.value(output)] { run(op, x, y); });
}

void ActivationOp::backward(PlanBuilder& builder) {
  builder.assign_gradient(inputs[0], [&](const Tensor& dx) {
    builder.call([run = gradient_kernel.get(builder.device()), op = functions_of(curve_).gradient,
                  y = builder.value(output), dy = builder.gradient(output),
                  dx] { run(op, y, dy, dx); });
  });
}

bool is_relu(const PlanOp& op) {
  const auto* const activation = dynamic_cast<const ActivationOp*>(&op);
  return activation != nullptr && activation->curve() == ActivationOp::Curve::relu;
}

void emit_relu(PlanBuilder& builder, ValueId value) {
  builder.call([run = unary_kernel.get(builder.device()), y = builder.value(value)] {
    run(UnaryOp::relu, y, y);
  });
}

void emit_relu_gradient(PlanBuilder& builder, ValueId value) {
  builder.call([run = gradient_kernel.get(builder.device()), y = builder.value(value),
                dy = builder.gradient(value)] { run(GradientOp::relu, y, dy, dy); });
}

}  // namespace convscope
