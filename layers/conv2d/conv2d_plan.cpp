// SPDX-License-Identifier: Apache-2.0
// conv2d_plan.cpp: the convolution in a planned step: the chosen cards' functions with prepared
// arguments, and what may ride on the forward.
#include <fmt/format.h>

#include <algorithm>

#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/conv2d/conv2d.h"
#include "layers/conv2d/conv2d_op.h"
#include "layers/conv2d/epilogue.h"
#include "layers/plan/activation_op.h"
#include "layers/plan/add_op.h"
#include "layers/plan/operation_op.h"

namespace convscope {
namespace {

void* address_of(const Tensor& tensor) { return tensor.defined() ? tensor.raw_data() : nullptr; }

}  // namespace

Conv2dForm choose_form(Conv2dChoices& of_layer, const SparseWeights* sparse,
                       const Conv2dProblem& problem, Direction direction, Device device,
                       WeightUse use) {
  constexpr const char* kSparse = "block_sparse";
  if (sparse == nullptr) return {.choice = of_layer.get(problem, direction, device, use)};
  Conv2dProblem blocks = problem;
  blocks.weight_format = sparse->format();
  const bool can = sparse->obstacle().empty();
  const bool wants_all = direction == Direction::backward_weight && sparse->wants_dense_gradient();
  constexpr const char* kWantsAll = "weights that are out want their gradient";
  if (can && of_layer.policy().of(direction) == kSparse) {  // an order
    const auto ordered = of_layer.get(blocks, direction, device, use);
    if (!wants_all) return {.choice = ordered, .in_blocks = true};
    const Decision dense = decide("auto", question_of(problem, direction, device, use));
    return {.choice = {.algorithm = conv2d_algorithms(device.type).find(dense.names.first),
                       .word = "auto",
                       .layer = ordered.layer},
            .why_dense = kWantsAll};
  }
  Conv2dForm out{.choice = of_layer.get(problem, direction, device, use)};
  const Conv2dAlgorithm* const card = conv2d_algorithms(device.type).find(kSparse);
  if (!can || card == nullptr) {
    out.why_dense = can ? "there is no block_sparse here" : sparse->obstacle();
  } else if (out.choice.word != "auto" && out.choice.word != "measure") {
    out.why_dense = "the config says so";
  } else if (wants_all) {
    out.why_dense = kWantsAll;
  } else if (const Support support = support_of(*card, blocks, direction); !support.yes) {
    out.why_dense = cat(kSparse, " ", support.reason);
  } else {
    const double dense_ms = estimated_ms(*out.choice.algorithm, problem, direction, use);
    const double sparse_ms = estimated_ms(*card, blocks, direction, use);
    if (sparse_ms < dense_ms) {
      return {.choice = {.algorithm = card, .word = out.choice.word, .layer = out.choice.layer},
              .in_blocks = true};
    }
    out.why_dense = fmt::format("at density {:.2f} {} is estimated at {:.2f} of its time",
                                sparse->density(), kSparse, sparse_ms / dense_ms);
  }
  return out;
}

std::optional<double> Conv2dOp::layout_ms(const PlanGraph& graph, ActivationLayout layout) const {
  constexpr double kPreferred = 1e6;  // more than any layer takes
  if (!of_layer_) return PlanOp::layout_ms(graph, layout);
  const AlgorithmPolicy& policy = of_layer_->policy();
  if (layout != ActivationLayout::nchw && policy.layout == "nchw") return std::nullopt;
  Conv2dProblem problem = problem_;
  problem.layout = layout;
  double ms = layout == ActivationLayout::nchw && policy.layout == "blocked" ? kPreferred : 0;
  for (const Direction direction : kDirections) {
    if (choice(direction).algorithm == nullptr) continue;
    if (sparse_ && policy.of(direction) == "block_sparse") {
      Conv2dProblem blocks = problem;
      blocks.weight_format = sparse_->format();
      const Question question = question_of(blocks, direction, graph.device(), use_);
      const Decision decision = decide_unrun<Conv2dProblem>(policy.of(direction), question);
      if (!decision.error.empty()) return std::nullopt;
      ms += form_ms(problem, direction, graph.device());
      continue;
    }
    const Question question = question_of(problem, direction, graph.device(), use_);
    const Decision decision = decide_unrun<Conv2dProblem>(policy.of(direction), question);
    if (!decision.error.empty()) return std::nullopt;
    const double dense =
        std::ranges::find(question.verdicts, decision.names.first, &Verdict::algorithm)
            ->estimated_ms;
    ms += sparse_ ? form_ms(problem, direction, graph.device()) : dense;
  }
  return ms;
}

// Of the form that a problem of this layer would get.
double Conv2dOp::form_ms(Conv2dProblem problem, Direction direction, Device device) const {
  const Conv2dForm form = choose_form(*of_layer_, sparse_.get(), problem, direction, device, use_);
  if (form.in_blocks) problem.weight_format = sparse_->format();
  return estimated_ms(*form.choice.algorithm, problem, direction, use_);
}

void Conv2dOp::set_layout(const PlanGraph& graph, ActivationLayout layout) {
  problem_.layout = layout;
  for (const Direction direction : kDirections) {
    Conv2dForm& form = forms_[static_cast<std::size_t>(direction)];
    if (form.choice.algorithm == nullptr) continue;
    form = choose_form(*of_layer_, sparse_.get(), problem_, direction, graph.device(), use_);
  }
}

std::string Conv2dOp::text() const {
  const bool blocked = problem_.layout != ActivationLayout::nchw;
  std::string out = cat("conv2d ", forms_[0].choice.algorithm->name, blocked ? " blocked" : "",
                        norm_ ? " + batch_norm2d" : "", residual_at_ > 0 ? " + residual" : "",
                        relu_ ? fused_relu_text(most_) : "");
  for (const Direction direction : kDirections) {
    const Conv2dForm& form = this->form(direction);
    if (form.choice.algorithm == nullptr || form.why_dense.empty()) continue;
    out += cat("; ", name_of(direction), " ", form.choice.algorithm->name, ", dense, because ",
               form.why_dense);
  }
  return out;
}

std::vector<RanKernel> Conv2dOp::kernels(const PlanGraph& graph) const {
  std::vector<RanKernel> out;
  const auto add = [&](Direction direction, bool runs) {
    if (!runs) return;
    out.push_back({.layer = layer,
                   .direction = direction,
                   .kernel = choice(direction).algorithm->name,
                   .layout = problem_.layout});
  };
  add(Direction::forward, true);
  add(Direction::backward_data, graph.wants_gradient(x()));
  add(Direction::backward_weight, graph.wants_gradient(weight()));
  return out;
}

bool Conv2dOp::absorb(const PlanGraph& graph, PlanOp& next) {
  if (relu_) return false;
  if (const auto most = fused_relu_bound(graph, next)) {
    most_ = *most;
    return relu_ = true;
  }
  if (residual_at_ > 0) return false;
  const auto* const norm = dynamic_cast<const BatchNormOp*>(&next);
  if (norm != nullptr && !graph.training() && !norm_ && norm->is_plain()) {
    norm_ = norm->fold();
    return true;
  }
  if (dynamic_cast<AddOp*>(&next) == nullptr || next.inputs[0] == next.inputs[1]) return false;
  residual_at_ = inputs.size();  // where the graph appends it
  return true;
}

void Conv2dOp::emit_fold(PlanBuilder& builder, Slot w, Slot b) const {
  builder.call([norm = *norm_, weight = builder.value(weight()),
                bias = has_bias_ ? builder.value(bias()) : Tensor(), to_w = builder.use(w),
                to_b = builder.use(b)] {
    batch_norm_fold({.weight = norm.weight.value(),
                     .bias = norm.bias.value(),
                     .mean = norm.mean,
                     .variance = norm.variance,
                     .eps = norm.eps,
                     .w = weight,
                     .b = bias,
                     .to_w = to_w,
                     .to_b = to_b});
  });
}

// In inference all that depends on the weights alone is done in the prologue; a folded w that has
// been prepared is needed no longer.
Conv2dOp::Weights Conv2dOp::weights(PlanBuilder& builder) {
  const bool prepares =
      !builder.training() &&
      choice(Direction::forward)
              .algorithm->prepared_size(problem_of(Direction::forward), Direction::forward) > 0;
  if (!norm_ && !prepares) {
    return {builder.value(weight()), has_bias_ ? builder.value(bias()) : Tensor(), Tensor()};
  }
  Weights out;
  Slot w = kNoSlot;
  if (norm_) {
    const Shape& shape = builder.shape(weight());
    w = prepares ? builder.temporary(shape, DType::f32) : builder.slot(shape, DType::f32);
    const Slot b = builder.slot({problem_.k}, DType::f32);
    builder.prologue([&] { emit_fold(builder, w, b); });
    out.b = builder.use(b);
    if (!prepares) out.w = builder.use(w);
  } else if (has_bias_) {
    out.b = builder.value(bias());
  }
  if (!prepares) return out;
  Slot prepared = kNoSlot;
  builder.prologue([&] {
    prepared = emit_preparation(builder, norm_ ? builder.use(w) : builder.value(weight()));
  });
  out.prepared = builder.use(prepared);
  return out;
}

// Returns where the prepared weights stay.
Slot Conv2dOp::emit_preparation(PlanBuilder& builder, const Tensor& w) const {
  const Conv2dAlgorithm* const algorithm = choice(Direction::forward).algorithm;
  const Conv2dProblem problem = problem_of(Direction::forward);
  const auto bytes =
      static_cast<std::int64_t>(algorithm->prepared_size(problem, Direction::forward));
  const Slot prepared = builder.slot({bytes}, DType::u8);
  void* const workspace =
      builder.workspace(algorithm->workspace_bytes(problem, Direction::forward));
  Preparation prepare{.run = algorithm->prepare_weights, .w = w, .workspace = workspace};
  use_blocks(builder, Direction::forward, prepare);
  builder.call([prepare, problem, to = builder.use(prepared)]() mutable {
    prepare.prepared = to.raw_data();
    prepare(problem);
  });
  return prepared;
}

void Conv2dOp::use_blocks(PlanBuilder& builder, Direction direction, Preparation& prepare) const {
  if (!form(direction).in_blocks) return;
  prepare.sparse = sparse_;
  prepare.values = builder.workspace(stored_bytes());
}

Conv2dOp::Preparation Conv2dOp::preparation_of_step(PlanBuilder& builder, Direction direction,
                                                    void* workspace) const {
  const Conv2dAlgorithm* const algorithm = choice(direction).algorithm;
  const std::size_t bytes =
      algorithm->prepared_size(problem_of(direction), direction, WeightUse::once);
  if (bytes == 0) return {};
  Preparation out{algorithm->prepare_weights, direction, builder.value(weight()),
                  builder.workspace(bytes), workspace};
  use_blocks(builder, direction, out);
  return out;
}

const void* Conv2dOp::Preparation::operator()(const Conv2dProblem& problem) const {
  if (run == nullptr) return prepared;
  if (!sparse) {
    run({problem, direction, w.raw_data(), prepared, workspace});
    return prepared;
  }
  sparse->gather(w.data<float>(), static_cast<float*>(values));
  OperandViews views;
  views.w_blocks = sparse->view(values);
  run({problem, direction, values, prepared, workspace, views});
  return prepared;
}

// Undefined: the images, wherever they lie in this step.
Tensor Conv2dOp::images_or_value(PlanBuilder& builder) const {
  return x() == PlanGraph::input() ? Tensor() : builder.value(x());
}

void Conv2dOp::forward(PlanBuilder& builder) {
  const Conv2dAlgorithm* const algorithm = choice(Direction::forward).algorithm;
  const Weights weights = this->weights(builder);
  const Tensor x = images_or_value(builder);
  const Tensor y = builder.value(output);
  const Tensor residual = residual_at_ > 0 ? builder.value(inputs[residual_at_]) : Tensor();
  void* const workspace = builder.workspace(
      algorithm->workspace_bytes(problem_of(Direction::forward), Direction::forward));
  const Preparation prepare = builder.training()
                                  ? preparation_of_step(builder, Direction::forward, workspace)
                                  : Preparation{.prepared = address_of(weights.prepared)};
  const Conv2dEpilogue behind{
      .residual = residual.defined() ? residual.raw_data() : nullptr, .relu = relu_, .most = most_};
  const Conv2dEpilogue fused = algorithm->fuses_epilogue ? behind : Conv2dEpilogue{};
  const Conv2dEpilogue separate = algorithm->fuses_epilogue ? Conv2dEpilogue{} : behind;
  builder.call([problem = problem_of(Direction::forward), run = algorithm->forward,
                images = builder.images(), x, weights, prepare, y, workspace, fused, separate,
                device = builder.device()] {
    run({problem, x.defined() ? x.raw_data() : *images, address_of(weights.w),
         address_of(weights.b), y.raw_data(), workspace, fused, prepare(problem)});
    if (!separate.empty()) conv2d_epilogue_kernel.get(device)(separate, y);
  });
}

void Conv2dOp::backward(PlanBuilder& builder) {
  if (relu_) emit_relu_gradient(builder, output, most_);
  if (residual_at_ > 0 && builder.wants_gradient(inputs[residual_at_])) {
    copy_gradient(builder, output, inputs[residual_at_]);
  }
  if (has_bias_ && builder.wants_gradient(bias())) {
    const PlanBuilder::Target db = builder.gradient_target(bias());
    builder.call([run = conv2d_bias_gradient_kernel.get(builder.device()),
                  dy = builder.gradient(output), db] { run(dy, db.tensor, db.accumulate); });
  }
  if (builder.wants_gradient(weight())) {
    const Conv2dAlgorithm* const algorithm = choice(Direction::backward_weight).algorithm;
    const PlanBuilder::Target dw = builder.gradient_target(weight());
    const Tensor x = images_or_value(builder);
    const Tensor dy = builder.gradient(output);
    const Conv2dProblem problem = problem_of(Direction::backward_weight);
    void* const workspace =
        builder.workspace(algorithm->workspace_bytes(problem, Direction::backward_weight));
    if (form(Direction::backward_weight).in_blocks) {  // of the stored blocks, then put into dw
      builder.call([problem, run = algorithm->backward_weight, images = builder.images(), x, dy, dw,
                    workspace, sparse = sparse_, values = builder.workspace(stored_bytes())] {
        OperandViews views;
        views.w_blocks = sparse->view(values);
        run({problem, x.defined() ? x.raw_data() : *images, dy.raw_data(), values, false, workspace,
             views});
        sparse->scatter(static_cast<const float*>(values), dw.tensor.data<float>(), dw.accumulate);
      });
    } else {
      builder.call([problem, run = algorithm->backward_weight, images = builder.images(), x, dy, dw,
                    workspace] {
        run({problem, x.defined() ? x.raw_data() : *images, dy.raw_data(), dw.tensor.raw_data(),
             dw.accumulate, workspace});
      });
    }
  }
  if (!builder.wants_gradient(x())) return;
  const Conv2dAlgorithm* const algorithm = choice(Direction::backward_data).algorithm;
  builder.assign_gradient(x(), [&](const Tensor& dx) {
    const Tensor dy = builder.gradient(output);
    void* const workspace = builder.workspace(
        algorithm->workspace_bytes(problem_of(Direction::backward_data), Direction::backward_data));
    const Preparation prepare = preparation_of_step(builder, Direction::backward_data, workspace);
    builder.call([problem = problem_of(Direction::backward_data), run = algorithm->backward_data,
                  w = builder.value(weight()), dy, dx, workspace, prepare] {
      run({problem, dy.raw_data(), w.raw_data(), dx.raw_data(), workspace, prepare(problem)});
    });
  });
}

int Conv2d::describe(PlanGraph& graph, int x) {
  const Conv2dProblem problem = this->problem(graph.shape(x));
  if (problem.is_empty()) return graph.refuse("its batch has no samples");
  // What rounds its factors, or compares two algorithms, does so in its own forward().
  const auto checks = [&](Direction direction) {
    return is_check(choices_->policy().of(direction)) &&
           (direction == Direction::forward || graph.training());
  };
  if (is_half(problem.dtype) ||
      std::any_of(std::begin(kDirections), std::end(kDirections), checks)) {
    return describe_dynamic(graph, *this, x);
  }
  const bool trains = graph.training() && (graph.wants_gradient(x) || weight_.requires_grad() ||
                                           (bias_.defined() && bias_.requires_grad()));
  x = transformed_input(graph, x);
  const ValueId w = transformed_weight(graph, weight_);
  if (pads_itself()) {
    x = describe_operation(graph, *this,
                           pad2d_operation(options_.params.padding, options_.padding_mode), {x});
  }
  if (x == kNoValue || w == kNoValue) return kNoValue;
  // Only of directions that somebody asks for: an algorithm that refuses another one is no error.
  const WeightUse use = trains ? WeightUse::once : WeightUse::often;
  if (sparse_) {
    sparse_->refresh();
    graph.valid_while([sparse = sparse_, version = sparse_->version()] {
      return sparse->version() == version && sparse->is_current();
    });
  }
  Conv2dForms forms;
  for (const Direction direction : kDirections) {
    const bool runs =
        direction == Direction::forward ||
        (graph.training() && (direction != Direction::backward_data || graph.wants_gradient(x)));
    if (!runs) continue;
    forms[static_cast<std::size_t>(direction)] =
        choose_form(*choices_, sparse_.get(), problem, direction, graph.device(), use);
  }
  std::vector<ValueId> inputs{x, w};
  if (bias_.defined()) inputs.push_back(graph.parameter(bias_));
  return graph.add(std::make_unique<Conv2dOp>(problem, bias_.defined(), std::move(forms), choices_,
                                              use, sparse_),
                   std::move(inputs), problem.y_shape());
}

}  // namespace convscope
