// SPDX-License-Identifier: Apache-2.0
// gradcheck.cpp: compares the gradients of the backward pass with central differences, in double.
#include "framework/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "framework/random.h"

namespace convscope {
namespace {

// The weights are in [0.5, 1.5), so every output contributes to the weighted sum.
Tensor weights_like(const Variable& y, std::uint64_t seed) {
  Tensor weights = Tensor::empty(y.shape(), DType::f64);
  Generator random(seed);
  for (std::int64_t i = 0; i < weights.numel(); ++i) {
    weights.data<double>()[i] = static_cast<double>(random.uniform(0.5f, 1.5f));
  }
  return weights;
}

double weighted_sum(const Tensor& y, const Tensor& weights) {
  double total = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    total += y.data<double>()[i] * weights.data<double>()[i];
  }
  return total;
}

}  // namespace

std::string GradcheckResult::str() const {
  return cat("input ", input, " index ", index, ": tape ", tape, ", difference ", difference,
             ", error ", max_error);
}

GradcheckResult gradcheck(const std::function<Variable(const std::vector<Variable>&)>& f,
                          const std::vector<Variable>& inputs, const GradcheckOptions& options) {
  std::vector<Variable> leaves;  // copies: the caller's values and gradients do not change
  for (const Variable& input : inputs) {
    CONVSCOPE_CHECK(input.dtype() == DType::f64, "gradcheck", "expected inputs of type f64, got ",
                    input.value().str());
    leaves.emplace_back(input.value().clone(), input.requires_grad());
  }
  const Variable y = f(leaves);
  CONVSCOPE_CHECK(y.dtype() == DType::f64, "gradcheck", "expected a result of type f64, got ",
                  y.value().str());
  const Tensor weights = weights_like(y, options.seed);
  if (y.requires_grad()) y.backward(weights);

  GradcheckResult result;
  const NoGrad no_grad;
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    if (!leaves[k].requires_grad()) continue;
    const Tensor grad = leaves[k].grad();
    double* const values = leaves[k].value().data<double>();
    for (std::int64_t i = 0; i < leaves[k].value().numel(); ++i) {
      const double before = values[i];
      const double h = options.step * std::max(1.0, std::abs(before));
      values[i] = before + h;
      const double above = weighted_sum(f(leaves).value(), weights);
      values[i] = before - h;
      const double below = weighted_sum(f(leaves).value(), weights);
      values[i] = before;
      const double difference = (above - below) / (2 * h);
      const double tape = grad.defined() ? grad.at(i) : 0.0;
      const double error = std::abs(tape - difference) / std::max(1.0, std::abs(difference));
      if (result.index >= 0 && error <= result.max_error) continue;  // a NaN error is recorded
      result.max_error = error;
      result.input = static_cast<int>(k);
      result.index = i;
      result.tape = tape;
      result.difference = difference;
      if (error != error) return result;  // NaN: not ok, and there is no larger error
    }
  }
  result.ok = result.max_error <= options.tolerance;
  return result;
}

}  // namespace convscope
