// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy.cpp: the loss of a classifier, and the number of correct predictions.
#include "framework/ops/softmax_cross_entropy.h"

#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>
    softmax_kernel{"softmax"};
constinit KernelSlot<void(const Tensor&, const Tensor&, double, const Tensor&)>
    softmax_gradient_kernel{"softmax"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> argmax_kernel{"argmax"};

namespace {

void check_logits(const Tensor& logits, const char* operation) {
  CONVSCOPE_CHECK(logits.defined() && logits.rank() == 2 && logits.dim(1) >= 1 &&
                      (logits.dtype() == DType::f32 || logits.dtype() == DType::f64),
                  operation, "expected logits [N,K] of type f32 or f64 with K >= 1, got ",
                  logits.str());
}

void check_labels(const Tensor& logits, const Tensor& labels, const char* operation) {
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

}  // namespace

Variable softmax_cross_entropy(const Variable& logits, const Tensor& labels) {
  const Tensor& x = logits.value();
  check_logits(x, "softmax_cross_entropy");
  check_labels(x, labels, "softmax_cross_entropy");
  CONVSCOPE_CHECK(x.dim(0) >= 1, "softmax_cross_entropy",
                  "expected at least one row because the loss is a mean, got logits ", x.shape());
  const double factor = 1.0 / static_cast<double>(x.dim(0));
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor losses = Tensor::empty({x.dim(0)}, x.dtype(), x.device());
  softmax_kernel.get(x.device())(x, labels, y, losses);
  return record("softmax_cross_entropy", scale(sum(losses), factor), {logits},
                // Copies the labels, because the data loader may reuse their memory for the next
                // batch.
                [y, labels = needs_record(logits) ? labels.clone() : Tensor(), factor](
                    const Tensor& dloss, GradientSink& out) {
                  const Tensor dx = Tensor::empty(y.shape(), y.dtype(), y.device());
                  softmax_gradient_kernel.get(y.device())(y, labels, factor * dloss.item(), dx);
                  out.add(0, dx);
                });
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
  check_logits(logits, "count_correct");
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
