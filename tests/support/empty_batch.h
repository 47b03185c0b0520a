// SPDX-License-Identifier: Apache-2.0
// empty_batch.h: tests a convolution algorithm with a batch without images. Calls the algorithm in
// all ways that layers do: by name, with tensors, and through the differentiable operation.
#pragma once

#include <string>
#include <vector>

#include "experiments/check/matrix/convolution_case.h"
#include "layers/conv2d/conv2d.h"
#include "layers/conv2d/select.h"
#include "layers/dispatch/execute.h"
#include "tests/support/cases.h"

namespace convscope::testing {

// Returns "" if all elements are `value`, else an error sentence that contains `name`.
inline std::string differs_from(double value, const Tensor& tensor, const std::string& name) {
  const Tensor host = tensor.to(Device{});
  for (std::int64_t i = 0; i < host.numel(); ++i) {
    if (host.at(i) == value) continue;
    return cat(name, ": expected ", value, ", got ", host.at(i), " at element ", i, "\n");
  }
  return "";
}

// Tests a single direction. All outputs contain the value 7 before the call.
inline std::string fault_in_direction(const Conv2dAlgorithm& algorithm,
                                      const Conv2dProblem& problem, Direction direction) {
  const Device device{algorithm.device, 0};
  const Conv2dChoice choice = select_conv2d(algorithm.name, problem, direction, device);
  const auto sevens = [&](const Shape& shape) { return Tensor::full(shape, 7.0).to(device); };
  const Tensor x = sevens(problem.x_shape());
  const Tensor y = sevens(problem.y_shape());
  const Tensor w = sevens(problem.w_shape());
  if (direction == Direction::forward) {
    execute(choice, problem, Direction::forward, {.in = {x, w, sevens({problem.k})}, .out = {y}});
  } else if (direction == Direction::backward_data) {
    execute(choice, problem, Direction::backward_data, {.in = {y, w}, .out = {x}});
  } else {
    std::string fault;
    for (const bool accumulate : {false, true}) {
      const Tensor dw = sevens(problem.w_shape());
      execute(choice, problem, Direction::backward_weight,
              {.in = {x, y}, .out = {dw}, .accumulate = accumulate});
      fault += differs_from(accumulate ? 7 : 0, dw, accumulate ? "dw added to" : "dw assigned");
    }
    return fault;
  }
  return differs_from(7, w, "w");  // all outputs are empty: returning without an error is enough
}

// Tests all directions as one operation. If the algorithm refuses a direction, `auto` chooses
// another one for it.
inline std::string fault_in_operation(const Conv2dAlgorithm& algorithm,
                                      const Conv2dProblem& problem) {
  const Device device{algorithm.device, 0};
  const auto word = [&](Direction direction) {
    return support_of(algorithm, problem, direction).yes ? std::string(algorithm.name) : "auto";
  };
  const Conv2dPolicy policy{word(Direction::forward), word(Direction::backward_data),
                            word(Direction::backward_weight)};
  const auto leaf = [&](const Shape& shape) {
    return Variable(Tensor::full(shape, 7.0).to(device), true);
  };
  Variable x = leaf(problem.x_shape());
  Variable w = leaf(problem.w_shape());
  Variable b = leaf({problem.k});
  const Conv2dParams params{
      .padding = {problem.pad_top, problem.pad_bottom, problem.pad_left, problem.pad_right},
      .groups = problem.groups};
  std::string fault;
  for (int pass = 0; pass < 2; ++pass) {  // the second adds to the gradients of the first
    const Variable y = conv2d(x, w, b, params, policy);
    if (!(y.shape() == problem.y_shape())) return cat("y is ", y.shape(), "\n");
    y.backward(Tensor::empty(problem.y_shape(), DType::f32, device));
    if (!(x.grad().shape() == problem.x_shape())) return cat("dx is ", x.grad().shape(), "\n");
    fault += differs_from(0, w.grad(), "dw") + differs_from(0, b.grad(), "db");
  }
  return fault;
}

// Tests one direction with block-sparse weights, or with images in another layout than NCHW.
inline std::string fault_of_operands(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                                     Direction direction) {
  Operands operands = random_operands(problem.operands(direction), Device{algorithm.device, 0});
  if (direction != Direction::backward_weight) {
    run_algorithm(algorithm, problem, direction, operands);
    return operands.out[0].values.numel() == 0 ? "" : "its output is not empty\n";
  }
  std::string fault;
  for (const bool accumulate : {false, true}) {
    operands.out[0].values.fill(7);
    operands.accumulate = accumulate;
    run_algorithm(algorithm, problem, direction, operands);
    fault += differs_from(accumulate ? 7 : 0, operands.out[0].values, "dw");
  }
  return fault;
}

// Returns "" if y and dx have no elements, and dw and db are 0 or unchanged; else an error
// sentence.
inline std::string fault_with_no_images(const Conv2dAlgorithm& algorithm) {
  int taken = 0;
  for (const Conv2dProblem& problem : small_problems(0)) {
    bool any = false;
    for (const Direction direction : kDirections) {
      if (!support_of(algorithm, problem, direction).yes) continue;
      any = true;
      const std::string fault = fault_in_direction(algorithm, problem, direction);
      if (!fault.empty()) return cat(algorithm.name, ", ", problem.text(), ": ", fault);
    }
    if (!any) continue;
    ++taken;
    const std::string fault = fault_in_operation(algorithm, problem);
    if (!fault.empty()) return cat(algorithm.name, ", ", problem.text(), ": ", fault);
  }
  for (const Conv2dProblem& dense : small_problems(0)) {
    for (const Conv2dProblem& sparse : sparse_problems(dense, 0, 2)) {
      for (const Direction direction : kDirections) {
        if (!support_of(algorithm, sparse, direction).yes) continue;
        ++taken;
        const std::string fault = fault_of_operands(algorithm, sparse, direction);
        if (!fault.empty()) return cat(algorithm.name, ", ", sparse.text(), ": ", fault);
      }
    }
  }
  for (const Conv2dProblem& plain : small_problems(0)) {
    Conv2dProblem half = plain;
    half.dtype = DType::f16;
    std::vector<Conv2dProblem> forms = matrix::forms_of(plain);
    for (const Conv2dProblem& form : matrix::forms_of(half)) forms.push_back(form);
    for (const Conv2dProblem& form : forms) {
      if (form.layout == ActivationLayout::nchw) continue;
      for (const Direction direction : kDirections) {
        if (!support_of(algorithm, form, direction).yes) continue;
        ++taken;
        const std::string fault = fault_of_operands(algorithm, form, direction);
        if (!fault.empty()) return cat(algorithm.name, ", ", form.text(), ": ", fault);
      }
    }
  }
  return taken > 0 ? "" : cat(algorithm.name, " takes none of the problems");
}

}  // namespace convscope::testing
