// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy.cpp: the loss of a classifier, and the number of correct predictions.
#include "framework/ops/softmax_cross_entropy.h"

#include "framework/graph/apply.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"

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

namespace {

// Inputs: logits and labels. Outputs: the loss, and the number of correct predictions.
class SoftmaxCrossEntropy final : public Operation {
 public:
  SoftmaxCrossEntropy() : Operation("softmax_cross_entropy") {}

  TensorDesc bind(Graph& graph) override {
    const TensorDesc& x = graph.desc(inputs[0]);
    CONVSCOPE_CHECK(x.shape.rank() == 2, "softmax_cross_entropy",
                    "expected logits [N,classes], got ", x.shape);
    CONVSCOPE_CHECK(x.shape[0] >= 1, "softmax_cross_entropy",
                    "expected at least one row because the loss is a mean, got logits ", x.shape);
    more_outputs = {{{1}, DType::i32}};
    return {{1}, x.dtype};
  }

  void forward(Emitter& emitter) override {
    const TensorDesc& x = emitter.graph().desc(inputs[0]);
    const std::int64_t rows = x.shape[0];
    probabilities_ = emitter.slot(x.shape, x.dtype);
    const Slot losses = emitter.slot({rows}, x.dtype);
    const Slot sum = emitter.slot({1}, x.dtype);
    const Slot predicted = emitter.slot({rows}, DType::i32);
    const bool counts = !emitter.is_eager();  // count_correct() does it
    emitter.call(
        [device = emitter.device(), x = emitter.value(inputs[0]), labels = emitter.value(inputs[1]),
         y = emitter.use(probabilities_), each = emitter.use(losses), sum = emitter.use(sum),
         loss = emitter.value(outputs[0]), predicted = counts ? emitter.use(predicted) : Tensor(),
         correct = counts ? emitter.value(outputs[1]) : Tensor(),
         factor = 1.0 / static_cast<double>(rows)] {
          softmax_kernel.get(device)(x, labels, y, each);
          sum_kernel.get(device)(each, 1u, sum);
          scale_kernel.get(device)(factor, sum, loss);
          if (!correct.defined()) return;
          argmax_kernel.get(device)(x, predicted);
          count_equal_kernel.get(device)(predicted, labels, correct);
        });
  }

  // In a compiled step the loss is the result, and its gradient is the loss scale.
  void backward(Emitter& emitter) override {
    const double factor = 1.0 / static_cast<double>(emitter.graph().shape(inputs[0])[0]);
    emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
      emitter.call([run = softmax_gradient_kernel.get(emitter.device()),
                    y = emitter.use(probabilities_), labels = emitter.value(inputs[1]), dx, factor,
                    dloss = emitter.is_eager() ? emitter.gradient(output()) : Tensor(),
                    state = emitter.state(), device = emitter.device()] {
        run(y, labels, dloss.defined() ? factor * dloss.item() : factor, dx);
        if (state->loss_scale != nullptr) multiply_by_kernel.get(device)(state->loss_scale, dx);
      });
    });
  }

 private:
  Slot probabilities_ = kNoSlot;
};

}  // namespace

Variable softmax_cross_entropy(const Variable& logits, const Variable& labels) {
  return apply(std::make_unique<SoftmaxCrossEntropy>(), {logits, labels});
}

Variable softmax_cross_entropy(const Variable& logits, const Tensor& labels) {
  check_logits(logits.value(), "softmax_cross_entropy");
  check_labels(logits.value(), labels, "softmax_cross_entropy");
  // Copies the labels, because the data loader may reuse their memory for the next batch.
  return softmax_cross_entropy(logits, Variable(needs_record(logits) ? labels.clone() : labels));
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
