// SPDX-License-Identifier: Apache-2.0
// activation_op.cpp: an elementwise activation in a compiled step.
#include "layers/plan/activation_op.h"

#include <cmath>

#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/elementwise.h"

namespace convscope {
namespace {

struct Functions {
  const char* name;
  UnaryOp forward;
  GradientOp gradient;
};
Functions functions_of(ActivationOp::Function function) {
  switch (function) {
    case ActivationOp::Function::tanh:
      return {"tanh", UnaryOp::tanh, GradientOp::tanh};
    case ActivationOp::Function::sigmoid:
      return {"sigmoid", UnaryOp::sigmoid, GradientOp::sigmoid};
    case ActivationOp::Function::relu:
    case ActivationOp::Function::relu6:
      break;
  }
  return {"relu", UnaryOp::relu, GradientOp::relu};
}

// Returns scratch memory for the next call; undefined if the device needs none.
Tensor scratch_for(Emitter& builder, ValueId value, bool forward) {
  const Graph& graph = builder.graph();
  const Shape shape =
      bounded_relu_scratch(builder.device(), graph.stored_shape(value).numel(), forward);
  return shape.numel() == 0 ? Tensor() : builder.use(builder.temporary(shape, graph.dtype(value)));
}

void emit_bounded_relu_gradient(Emitter& builder, ValueId output, float most,
                                const Tensor& dx) {
  builder.call([run = bounded_relu_gradient_kernel.get(builder.device()), y = builder.value(output),
                dy = builder.gradient(output), most, scratch = scratch_for(builder, output, false),
                dx] { run(y, dy, most, scratch, dx); });
}

}  // namespace

std::string ActivationOp::text() const {
  return function_ == Function::relu6 ? "relu6" : functions_of(function_).name;
}

// Lanes after the last channel of NCHW16c and NHWC images must stay 0, so only activations with
// f(0) = 0 support these layouts.
std::optional<double> ActivationOp::layout_ms(const Graph& graph,
                                              ActivationLayout layout) const {
  const bool keeps_zero = function_ != Function::sigmoid;
  return keeps_zero ? same_in_both(layout) : PlanOp::layout_ms(graph, layout);
}

void ActivationOp::forward(Emitter& builder) {
  if (function_ == Function::relu6) {
    return builder.call(
        [run = bounded_relu_kernel.get(builder.device()), x = builder.value(inputs[0]),
         y = builder.value(output),
         scratch = scratch_for(builder, output, true)] { run(x, kRelu6Bound, scratch, y); });
  }
  builder.call([run = unary_kernel.get(builder.device()), op = functions_of(function_).forward,
                x = builder.value(inputs[0]), y = builder.value(output)] { run(op, x, y); });
}

void ActivationOp::backward(Emitter& builder) {
  builder.assign_gradient(inputs[0], [&](const Tensor& dx) {
    if (function_ == Function::relu6)
      return emit_bounded_relu_gradient(builder, output, kRelu6Bound, dx);
    builder.call([run = gradient_kernel.get(builder.device()),
                  op = functions_of(function_).gradient, y = builder.value(output),
                  dy = builder.gradient(output), dx] { run(op, y, dy, dx); });
  });
}

bool is_relu(const PlanOp& op) {
  const auto* const activation = dynamic_cast<const ActivationOp*>(&op);
  return activation != nullptr && activation->function() == ActivationOp::Function::relu;
}

std::optional<float> relu_bound(const PlanOp& op) {
  if (is_relu(op)) return std::numeric_limits<float>::infinity();
  const auto* const activation = dynamic_cast<const ActivationOp*>(&op);
  if (activation == nullptr || activation->function() != ActivationOp::Function::relu6) {
    return std::nullopt;
  }
  return kRelu6Bound;
}

std::optional<float> fused_relu_bound(const Graph& graph, const PlanOp& op) {
  const auto most = relu_bound(op);
  if (!most || (std::isfinite(*most) && graph.device().type != DeviceType::cpu)) {
    return std::nullopt;
  }
  return most;
}

std::string fused_relu_text(float most) {
  return std::isinf(most) ? " + relu" : cat(" + relu", most);
}

void emit_relu(Emitter& builder, ValueId value) {
  builder.call([run = unary_kernel.get(builder.device()), y = builder.value(value)] {
    run(UnaryOp::relu, y, y);
  });
}

void emit_relu_gradient(Emitter& builder, ValueId value, float most) {
  if (!std::isinf(most)) {
    return emit_bounded_relu_gradient(builder, value, most, builder.gradient(value));
  }
  builder.call([run = gradient_kernel.get(builder.device()), y = builder.value(value),
                dy = builder.gradient(value)] { run(GradientOp::relu, y, dy, dy); });
}

}  // namespace convscope
