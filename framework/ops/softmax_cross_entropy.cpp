// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy.cpp: softmax of logits, and the number of correct predictions.
#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>
    softmax_kernel{"softmax"};
constinit KernelSlot<void(const Tensor&, const Tensor&, double, const Tensor&)>
    softmax_gradient_kernel{"softmax"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> argmax_kernel{"argmax"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> count_equal_kernel{
    "count_correct"};
constinit KernelSlot<void(const double*, const Tensor&)> multiply_by_kernel{"loss scale"};

namespace {

void check_logits(const Tensor& logits, const char* operation) {
  CONVSCOPE_CHECK(logits.defined() && logits.rank() == 2 && logits.dim(1) >= 1 &&
                      (logits.dtype() == DType::f32 || logits.dtype() == DType::f64),
                  operation, "expected logits [N,K] of type f32 or f64 with K >= 1, got ",
                  logits.str());
}

}  // namespace

void check_labels(const Tensor& logits, const Tensor& labels, const char* operation) {
  check_logits(logits, operation);
  CONVSCOPE_CHECK(labels.defined() && labels.dtype() == DType::i32 &&
                      labels.shape() == Shape{logits.dim(0)} && labels.device() == logits.device(),
                  operation, "expected labels i32[", logits.dim(0), "] because logits are ",
                  logits.str(), ", got ", labels.str());
  if (labels.device().type != DeviceType::cpu) return;  // device kernels ignore invalid labels
  const std::int32_t* const label = labels.data<std::int32_t>();
  for (std::int64_t n = 0; n < labels.numel(); ++n) {
    CONVSCOPE_CHECK(label[n] >= 0 && label[n] < logits.dim(1), operation, "expected labels in [0,",
                    logits.dim(1), ") because logits are ", logits.shape(), ", got ", label[n],
                    " at index ", n);
  }
}

Tensor softmax(const Tensor& logits) {
  check_logits(logits, "softmax");
  Tensor y = Tensor::empty(logits.shape(), logits.dtype(), logits.device());
  softmax_kernel.get(logits.device())(logits, Tensor(), y, Tensor());
  return y;
}

Tensor argmax(const Tensor& logits) {
  check_logits(logits, "argmax");
  Tensor y = Tensor::empty({logits.dim(0)}, DType::i32, logits.device());
  argmax_kernel.get(logits.device())(logits, y);
  return y;
}

std::int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  check_labels(logits, labels, "count_correct");
  const Tensor predicted = argmax(logits).to(Device{});
  const Tensor expected = labels.to(Device{});
  std::int64_t correct = 0;
  for (std::int64_t n = 0; n < labels.numel(); ++n) {
    correct += predicted.data<std::int32_t>()[n] == expected.data<std::int32_t>()[n] ? 1 : 0;
  }
  return correct;
}

}  // namespace convscope
