// SPDX-License-Identifier: Apache-2.0
// call_arrays.h: the arrays of one call of an operator, by name. `convscope op` and the Python
// package name an operator's arrays, and problem.operands(direction) gives their order.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "layers/dispatch/operands.h"

namespace convscope {

// Inputs are named as in OperandSpecs, except for the gradient of y: x, w, b, dy. Results are y, or
// gradients: dx, dw.
inline const char* input_name(const OperandSpec& spec) {
  return std::strcmp(spec.name, "y") == 0 ? "dy" : spec.name;
}
inline std::string result_name(const OperandSpec& spec, Direction direction) {
  return direction == Direction::forward ? spec.name : std::string("d") + spec.name;
}

// Returns the place of the bias among the inputs of a forward pass.
template <class Problem>
constexpr std::size_t bias_place() {
  if constexpr (requires { Operator<Problem>::kBiasPlace; }) {
    return Operator<Problem>::kBiasPlace;
  } else {
    return 2;  // after x and w
  }
}

// Returns the shape of an input, or of b. `forward` are the operands of the forward pass.
inline Shape input_shape(const OperandSpecs& forward, std::string_view name) {
  const Shape& y = forward.outputs[0].shape;
  if (name == "dy") return y;
  if (name == "b") return {y.at(1)};
  for (const OperandSpec& spec : forward.inputs) {
    if (name == spec.name) return spec.shape;
  }
  fail("input_shape", cat("expected an input of the operator, got '", name, "'"));
}

// Returns the operands of a direction: the inputs of `specs` and, in a forward pass, the bias, from
// find(name), which may be undefined; and new outputs on the device.
template <class Find>
Operands call_operands(const OperandSpecs& specs, Direction direction, std::size_t bias_place,
                       Device device, const Find& find) {
  Operands out;
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    out.in.at(i).values = find(input_name(specs.inputs[i]));
  }
  if (direction == Direction::forward) out.in.at(bias_place).values = find("b");
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.out.at(i).values = Tensor::empty(specs.outputs[i].shape, specs.outputs[i].type, device);
  }
  return out;
}

// Returns db [K] in the type and on the device of dy, which is [N,K,P,Q] or has rows [m,K]. Sums
// are f64; half-precision dy is converted to f32.
CONVSCOPE_API Tensor bias_gradient(const Tensor& dy);

}  // namespace convscope
