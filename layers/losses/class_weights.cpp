// SPDX-License-Identifier: Apache-2.0
// class_weights.cpp: weights of the classes in a loss.
#include "layers/losses/class_weights.h"

#include <algorithm>

#include "framework/memory/unbacked.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {

const OptionField& class_weights_field() {
  static const OptionField field = {
      .name = kClassWeights,
      .type = OptionType::numbers,
      .doc = "weight of each class in the mean, such as [1, 2, 0.5] (default: 1 for each class)",
      .min = 0};
  return field;
}

void minus_one_hot(const Tensor& finite, const Tensor& labels, const Tensor& out) {
  scale_kernel.get(out.device())(0.0, finite, out);
  softmax_gradient_kernel.get(out.device())(out, labels, 1.0, out);
}

Tensor constants(const std::vector<double>& values, DType dtype, Device device) {
  const Tensor out = Tensor::empty({std::ssize(values)}, dtype);
  const auto bytes = static_cast<std::size_t>(out.size_bytes());
  if (!is_filled(Device{}, bytes)) return Tensor::empty(out.shape(), dtype, device);
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (dtype == DType::f64) {
      out.data<double>()[k] = values[k];
    } else {
      out.data<float>()[k] = static_cast<float>(values[k]);
    }
  }
  return out.to(device);
}

ClassWeights::ClassWeights(const Options& options) {
  if (!options.has(kClassWeights)) return;
  weights_ = options.numbers(kClassWeights);
  const bool any = std::ranges::any_of(weights_, [](double weight) { return weight > 0; });
  CONVSCOPE_CHECK(any, kClassWeights, "expected at least one weight above 0, got ",
                  to_text(weights_));
}

void ClassWeights::prepare(const char* operation, const Shape& rows, DType dtype, Device device,
                           const std::vector<double>& more) {
  const auto classes = static_cast<std::size_t>(rows[1]);
  CONVSCOPE_CHECK(!is_given() || weights_.size() == classes, operation, "expected ", classes,
                  " class weights because there are ", classes, " classes, got ", weights_.size());
  std::vector<double> all(classes, 1);
  if (is_given()) all = weights_;
  weight_ = constants(all, dtype, device);
  for (std::size_t k = 0; k < more.size(); ++k) all[k] *= more[k];
  factor_ = constants(all, dtype, device);
}

Tensor ClassWeights::of_batch(const Tensor& minus_one_hot, const LabelCounts* counts,
                              const Tensor& scratch) const {
  if (!is_given()) return factor_;
  const Device device = factor_.device();
  const auto binary = binary_kernel.get(device);
  const auto scale = scale_kernel.get(device);
  const auto sum = sum_kernel.get(device);
  LossScratch cut(scratch);
  const Tensor out = cut.take(factor_.shape()), mean = cut.take({1}), bounded = cut.take({1});
  if (counts != nullptr && !counts->empty()) {
    CONVSCOPE_CHECK(counts->size() == weights_.size(), kClassWeights, "expected label counts of ",
                    weights_.size(), " classes, got ", counts->size());
    double all = 0, weighted = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      all += static_cast<double>((*counts)[k]);
      weighted += weights_[k] * static_cast<double>((*counts)[k]);
    }
    scale(weighted > 0 ? all / weighted : 0.0, factor_, out);
    return out;
  }
  constexpr unsigned kRows = 1u << 0, kAll = 1u << 0;
  constexpr double kTiny = 1e-30;
  sum(minus_one_hot, kRows, out);  // minus the number of labels of each class
  binary(BinaryOp::mul, out, weight_, out);
  sum(out, kAll, mean);
  scale(-1.0 / static_cast<double>(minus_one_hot.dim(0)), mean, mean);
  // Replaces the mean m by m / (m + tiny)^2, which is 1 / m, and 0 for m = 0.
  scale(0.0, mean, bounded);
  unary_kernel.get(device)(UnaryOp::exp, bounded, bounded);
  scale(kTiny, bounded, bounded);
  binary(BinaryOp::add, mean, bounded, bounded);
  binary(BinaryOp::div, mean, bounded, mean);
  binary(BinaryOp::div, mean, bounded, mean);
  binary(BinaryOp::mul, factor_, mean, out);
  return out;
}

}  // namespace convscope
