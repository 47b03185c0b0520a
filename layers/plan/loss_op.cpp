// SPDX-License-Identifier: Apache-2.0
// loss_op.cpp: the last operation of a compiled training step. It computes softmax cross-entropy of
// logits [N,classes], its mean over the batch, and how many images have their largest logit at
// their label.
#include "layers/plan/loss_op.h"

#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> count_equal_kernel{
    "count_correct"};
constinit KernelSlot<void(const double*, const Tensor&)> multiply_by_kernel{"loss scale"};

namespace {

void multiply_by_cpu(const double* factor, const Tensor& x) {
  float* const to = x.data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] *= static_cast<float>(*factor);
}
CONVSCOPE_KERNEL(multiply_by_kernel, cpu, multiply_by_cpu);

void count_equal_cpu(const Tensor& predicted, const Tensor& labels, const Tensor& out) {
  const std::int32_t* const a = predicted.data<std::int32_t>();
  const std::int32_t* const b = labels.data<std::int32_t>();
  std::int32_t count = 0;
  for (std::int64_t n = 0; n < labels.numel(); ++n) count += a[n] == b[n] ? 1 : 0;
  *out.data<std::int32_t>() = count;
}
CONVSCOPE_KERNEL(count_equal_kernel, cpu, count_equal_cpu);

}  // namespace

void LossOp::forward(Emitter& builder) {
  const Shape& shape = builder.shape(inputs[0]);
  const Device device = builder.device();
  probabilities_ = builder.slot(shape, DType::f32);
  const Slot losses = builder.slot({shape[0]}, DType::f32);
  const Slot sum = builder.slot({1}, DType::f32);
  const Slot predicted = builder.slot({shape[0]}, DType::i32);
  builder.call([device, x = builder.value(inputs[0]), labels = builder.labels(),
                y = builder.use(probabilities_), each = builder.use(losses), sum = builder.use(sum),
                loss = builder.loss(), predicted = builder.use(predicted),
                correct = builder.correct(), factor = 1.0 / static_cast<double>(shape[0])] {
    softmax_kernel.get(device)(x, labels, y, each);
    sum_kernel.get(device)(each, 1u, sum);
    scale_kernel.get(device)(factor, sum, loss);
    argmax_kernel.get(device)(x, predicted);
    count_equal_kernel.get(device)(predicted, labels, correct);
  });
}

void LossOp::backward(Emitter& builder) {
  const Emitter::Target dx = builder.gradient_target(inputs[0]);
  builder.call([run = softmax_gradient_kernel.get(builder.device()),
                y = builder.use(probabilities_), labels = builder.labels(), dx = dx.tensor,
                factor = 1.0 / static_cast<double>(builder.shape(inputs[0])[0]),
                scale = builder.loss_scale(), device = builder.device()] {
    run(y, labels, factor, dx);
    if (*scale != nullptr) multiply_by_kernel.get(device)(*scale, dx);
  });
}

}  // namespace convscope
