// SPDX-License-Identifier: Apache-2.0
// loss.cpp: what all losses share: the mean of the terms, the number of correct predictions, and
// the factor of the gradient.
#include "layers/losses/loss.h"

#include "framework/graph/apply.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {

Registry<LossType>& loss_types() {
  static Registry<LossType> table("loss");
  return table;
}

const LossType& default_loss() { return loss_types().get(kDefaultLoss); }

Variable LossType::operator()(const Variable& x, const Variable& labels) const {
  return apply(make(), {x, labels});
}

Variable LossType::operator()(const Variable& x, const Tensor& labels) const {
  std::unique_ptr<LossOperation> operation = make();
  check_labels(x.value(), labels, operation->kind().data());
  // Copies the labels, because the data loader may reuse their memory for the next batch.
  return apply(std::move(operation), {x, Variable(needs_record(x) ? labels.clone() : labels)});
}

std::int64_t LossType::correct(const Tensor& x, const Tensor& labels) const {
  return count_correct(x, labels);
}

TensorDesc LossOperation::bind(Graph& graph) {
  const TensorDesc& x = graph.desc(inputs[0]);
  const char* const name = kind().data();
  CONVSCOPE_CHECK(x.shape.rank() == 2, name, "expected logits [N,classes], got ", x.shape);
  CONVSCOPE_CHECK(x.shape[0] >= 1, name,
                  "expected at least one row because the loss is a mean, got logits ", x.shape);
  more_outputs = {{{1}, DType::i32}};
  return {{1}, x.dtype};
}

void LossOperation::forward(Emitter& emitter) {
  const TensorDesc& x = emitter.graph().desc(inputs[0]);
  const Shape shape = terms_shape(x.shape);
  saved_ = emitter.slot(x.shape, x.dtype);
  const Slot terms = emitter.slot(shape, x.dtype);
  const Slot sum = emitter.slot({1}, x.dtype);
  const Slot predicted = emitter.slot({x.shape[0]}, DType::i32);
  const bool counts = !emitter.is_eager();  // count_correct() does it
  const Forward a{.x = emitter.value(inputs[0]),
                  .labels = emitter.value(inputs[1]),
                  .saved = emitter.use(saved_),
                  .terms = emitter.use(terms)};
  emitter.call([this, a, all = (1u << shape.rank()) - 1, sum = emitter.use(sum),
                loss = emitter.value(outputs[0]),
                predicted = counts ? emitter.use(predicted) : Tensor(),
                correct = counts ? emitter.value(outputs[1]) : Tensor(),
                factor = 1.0 / static_cast<double>(shape.numel())] {
    const Device device = a.device();
    run(a);
    sum_kernel.get(device)(a.terms, all, sum);
    scale_kernel.get(device)(factor, sum, loss);
    if (!correct.defined()) return;
    argmax_kernel.get(device)(a.x, predicted);
    count_equal_kernel.get(device)(predicted, a.labels, correct);
  });
}

// In a compiled step the loss is the result, and its gradient is the loss scale.
void LossOperation::backward(Emitter& emitter) {
  const Shape terms = terms_shape(emitter.graph().shape(inputs[0]));
  emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
    Backward a{.saved = emitter.use(saved_),
               .labels = emitter.value(inputs[1]),
               .factor = 1.0 / static_cast<double>(terms.numel()),
               .dx = dx};
    emitter.call([this, a, state = emitter.state(),
                  dloss = emitter.is_eager() ? emitter.gradient(output()) : Tensor()]() mutable {
      const Device device = a.device();
      if (dloss.defined()) a.factor *= dloss.item();
      run(a);
      if (state->loss_scale != nullptr) multiply_by_kernel.get(device)(state->loss_scale, a.dx);
    });
  });
}

}  // namespace convscope
