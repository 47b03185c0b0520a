// SPDX-License-Identifier: Apache-2.0
// loss.cpp: what all losses share: the mean of the terms, the number of correct predictions, and
// the factor of the gradient.
#include "layers/losses/loss.h"

#include <algorithm>

#include "framework/graph/apply.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/layer_types.h"
#include "layers/losses/class_rows.h"
#include "layers/losses/class_weights.h"
#include "layers/losses/weighted_sum.h"

namespace convscope {

Registry<LossType>& loss_types() {
  static Registry<LossType> table("loss");
  return table;
}

namespace {

bool has_pixels(const Shape& x) { return x.rank() == 4; }

// Throws an error of `operation` unless labels are i32 [N,H,W], each in [0,K), for x [N,K,H,W].
void check_pixel_labels(const Tensor& x, const Tensor& labels, const char* operation) {
  const Shape want = labels_shape(x.shape());
  CONVSCOPE_CHECK(labels.defined() && labels.dtype() == DType::i32 && labels.shape() == want &&
                      labels.device() == x.device(),
                  operation, "expected labels i32", want, " because logits are ", x.str(), ", got ",
                  labels.str());
  if (labels.device().type != DeviceType::cpu) return;  // device kernels ignore invalid labels
  const std::int32_t* const label = labels.data<std::int32_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    CONVSCOPE_CHECK(label[i] >= 0 && label[i] < x.dim(1), operation, "expected labels in [0,",
                    x.dim(1), ") because logits are ", x.shape(), ", got ", label[i], " at index ",
                    i);
  }
}

}  // namespace

Loss::Loss(std::vector<LossTerm> terms) : terms_(std::move(terms)) {
  CONVSCOPE_CHECK(!terms_.empty(), "loss", "expected at least one loss, got none");
  CONVSCOPE_CHECK(
      std::ranges::any_of(terms_, [](const LossTerm& term) { return term.weight != 0; }), "loss",
      "expected a loss with a weight other than 0, got only losses with weight 0");
  for (LossTerm& term : terms_) {
    const LossType& type = loss_types().get(term.type);
    term.options = complete_options(type.fields, term.options, term.type);
  }
  operation();  // fails when values do not fit each other
}

std::unique_ptr<LossOperation> Loss::operation() const {
  std::vector<WeightedSum::Term> made;
  for (const LossTerm& term : terms_) {
    made.push_back({loss_types().get(term.type).make(term.options), term.weight});
    made.back().loss->label_counts = label_counts_;
  }
  const bool is_one = made.size() == 1 && made[0].weight == 1;
  return is_one ? std::move(made[0].loss) : std::make_unique<WeightedSum>(std::move(made));
}

Variable Loss::operator()(const Variable& x, const Variable& labels) const {
  return apply(operation(), {x, labels});
}

Variable Loss::operator()(const Variable& x, const Tensor& labels) const {
  std::unique_ptr<LossOperation> made = operation();
  const auto check = has_pixels(x.shape()) ? check_pixel_labels : check_labels;
  check(x.value(), labels, made->kind().data());
  // Copies the labels, because the data loader may reuse their memory for the next batch.
  return apply(std::move(made), {x, Variable(needs_record(x) ? labels.clone() : labels)});
}

std::int64_t Loss::weighted_classes() const {
  for (const LossTerm& term : terms_) {
    if (term.options.has(kClassWeights)) {
      return std::ssize(term.options.numbers(kClassWeights));
    }
  }
  return 0;
}

void Loss::set_label_counts(LabelCounts counts) const {
  CONVSCOPE_CHECK(label_counts_ != nullptr, "loss",
                  "expected a loss of for_parts() to set the label counts of");
  *label_counts_ = std::move(counts);
}

Loss Loss::for_parts() const {
  Loss out = *this;
  out.label_counts_ = std::make_shared<LabelCounts>();
  return out;
}

std::int64_t Loss::correct(const Tensor& x, const Tensor& labels) const {
  if (!has_pixels(x.shape())) return count_correct(x, labels);
  const Tensor rows = Tensor::empty(class_rows_shape(x.shape()), x.dtype(), x.device());
  class_rows_kernel.get(x.device())(x, rows);
  return count_correct(rows, labels.reshape({-1}));
}

TensorDesc LossOperation::bind(Graph& graph) {
  const TensorDesc& x = graph.desc(inputs[0]);
  const char* const name = kind().data();
  CONVSCOPE_CHECK(x.shape.rank() == 2 || has_pixels(x.shape), name,
                  "expected logits [N,classes] or [N,classes,H,W], got ", x.shape);
  CONVSCOPE_CHECK(class_rows_shape(x.shape)[0] >= 1, name,
                  "expected at least one row because the loss is a mean, got logits ", x.shape);
  prepare(class_rows_shape(x.shape), x.dtype, graph.device());
  more_outputs = {{{1}, DType::i32}};
  return {{1}, x.dtype};
}

void LossOperation::forward(Emitter& emitter) {
  const TensorDesc& x = emitter.graph().desc(inputs[0]);
  const Shape rows = class_rows_shape(x.shape);
  const Shape shape = terms_shape(rows);
  saved_ = emitter.slot(rows, x.dtype);
  const Slot copied = has_pixels(x.shape) ? emitter.slot(rows, x.dtype) : kNoSlot;
  const Slot terms = emitter.slot(shape, x.dtype);
  const Slot scratch = emitter.slot(scratch_shape(rows), x.dtype);
  const Slot sum = emitter.slot({1}, x.dtype);
  const Slot predicted = emitter.slot({rows[0]}, DType::i32);
  const bool counts = !emitter.is_eager();  // Loss::correct() does it
  const Tensor logits = emitter.value(inputs[0]);
  const Forward a{.x = copied == kNoSlot ? logits : emitter.use(copied),
                  .labels = emitter.value(inputs[1]),
                  .saved = emitter.use(saved_),
                  .terms = emitter.use(terms),
                  .scratch = emitter.use(scratch)};
  emitter.call([this, a, all = (1u << shape.rank()) - 1, sum = emitter.use(sum),
                planes = copied == kNoSlot ? Tensor() : logits, loss = emitter.value(outputs[0]),
                predicted = counts ? emitter.use(predicted) : Tensor(),
                correct = counts ? emitter.value(outputs[1]) : Tensor(),
                factor = 1.0 / static_cast<double>(shape.numel())] {
    const Device device = a.device();
    if (planes.defined()) class_rows_kernel.get(device)(planes, a.x);
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
  const TensorDesc& x = emitter.graph().desc(inputs[0]);
  const Shape rows = class_rows_shape(x.shape);
  const Slot copied = has_pixels(x.shape) ? emitter.slot(rows, x.dtype) : kNoSlot;
  emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
    Backward a{.saved = emitter.use(saved_),
               .labels = emitter.value(inputs[1]),
               .factor = 1.0 / static_cast<double>(terms_shape(rows).numel()),
               .dx = copied == kNoSlot ? dx : emitter.use(copied)};
    emitter.call([this, a, state = emitter.state(), planes = copied == kNoSlot ? Tensor() : dx,
                  dloss = emitter.is_eager() ? emitter.gradient(output()) : Tensor()]() mutable {
      const Device device = a.device();
      if (dloss.defined()) a.factor *= dloss.item();
      run(a);
      if (state->loss_scale != nullptr) multiply_by_kernel.get(device)(state->loss_scale, a.dx);
      if (planes.defined()) class_planes_kernel.get(device)(a.dx, planes);
    });
  });
}

}  // namespace convscope
