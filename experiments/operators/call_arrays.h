// SPDX-License-Identifier: Apache-2.0
// call_arrays.h: the arrays of one call of an operator, by name. `convscope op` and the Python
// package name an operator's arrays, and problem.operands(direction) gives their order.
#pragma once

#include <algorithm>
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
  const Shape& y = forward.outputs[0].desc.shape;
  if (name == "dy") return y;
  if (name == "b") return {y.at(1)};
  for (const OperandSpec& spec : forward.inputs) {
    if (name == spec.name) return spec.desc.shape;
  }
  fail("input_shape", cat("expected an input of the operator, got '", name, "'"));
}

// Runs one direction if wanted(name) names one of its results. find(name) returns an input, which
// may be undefined; run(operands) computes new outputs on the device; take(name, tensor) gets each
// wanted result.
template <class Problem, class Wanted, class Find, class Run, class Take>
void run_direction(const OperandSpecs& specs, Direction direction, Device device,
                   const Wanted& wanted, const Find& find, const Run& run, const Take& take) {
  const auto is_wanted = [&](const OperandSpec& spec) {
    return wanted(result_name(spec, direction));
  };
  if (std::ranges::none_of(specs.outputs, is_wanted)) return;
  Operands operands;
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    operands.in.at(i).values = find(input_name(specs.inputs[i]));
  }
  if (direction == Direction::forward) operands.in.at(bias_place<Problem>()).values = find("b");
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    operands.out.at(i) =
        Tensor::empty(specs.outputs[i].desc.shape, specs.outputs[i].desc.dtype, device);
  }
  run(operands);
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    const std::string name = result_name(specs.outputs[i], direction);
    if (wanted(name)) take(name, operands.out.at(i).values);
  }
}

// Returns db [K] in the type and on the device of dy, which is [N,K,P,Q] or has rows [m,K]. Sums
// are f64; half-precision dy is converted to f32.
CONVSCOPE_API Tensor bias_gradient(const Tensor& dy);

}  // namespace convscope
