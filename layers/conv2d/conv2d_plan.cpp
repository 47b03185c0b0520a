// SPDX-License-Identifier: Apache-2.0
// conv2d_plan.cpp: the convolution in a compiled step: calls of the chosen algorithms' functions
// with prepared arguments, and the operations that the forward pass absorbs.
#include <algorithm>

#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/conv2d/conv2d.h"
#include "layers/conv2d/conv2d_op.h"
#include "layers/conv2d/shared/cuda/reads_f32.h"
#include "layers/dispatch/half_problem.h"
#include "layers/plan/activation_op.h"
#include "layers/plan/add_op.h"
#include "layers/plan/operation_op.h"
#include "layers/plan/sparse_form.h"

namespace convscope {
Conv2dForm choose_form(Conv2dChoices& layer_choices, const SparseWeights* sparse,
                       const Conv2dProblem& problem, Direction direction, Device device,
                       WeightUse use) {
  if (sparse == nullptr) return {.choice = layer_choices.get(problem, direction, device, use)};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool can = sparse->obstacle().empty();
  if (can && layer_choices.policy().of(direction) == kSparseAlgorithm) {  // named by the policy
    Conv2dProblem blocks = problem;
    blocks.weight_format = sparse->format();
    const auto ordered = layer_choices.get(blocks, direction, device, use);
    if (direction != Direction::backward_weight || !sparse->wants_dense_gradient()) {
      return {.choice = ordered,
              .in_blocks = true,
              .blocks_ms = sparse_form(*sparse, problem, direction, device, use, kInfinity).ms};
    }
    const Decision dense = decide("auto", question_of(problem, direction, device, use));
    return {.choice = {.algorithm = conv2d_algorithms(device.type).find(dense.names.first),
                       .word = "auto",
                       .layer = ordered.layer},
            .why_dense = kWantsDenseGradient};
  }
  Conv2dForm out{.choice = layer_choices.get(problem, direction, device, use)};
  if (can && out.choice.word != "auto" && out.choice.word != "measure") {
    out.why_dense = "the config says so";
    return out;
  }
  const SparseForm form = sparse_form(*sparse, problem, direction, device, use,
                                      estimated_ms(*out.choice.algorithm, problem, direction, use));
  out.why_dense = form.why_dense;
  if (form.algorithm == nullptr) return out;
  out.choice.algorithm = form.algorithm;
  out.in_blocks = true;
  out.blocks_ms = form.ms;
  return out;
}

std::optional<double> Conv2dOp::layout_ms(const Graph& graph, ActivationLayout layout) const {
  constexpr double kPreferred = 1e6;  // longer than any layer takes
  if (is_half(preferred_half_type()))
    return layout == problem_.layout ? std::optional(0.0) : std::nullopt;
  if (!layer_choices_) return PlanOp::layout_ms(graph, layout);
  const AlgorithmPolicy& policy = layer_choices_->policy();
  if (layout != ActivationLayout::nchw && policy.layout == "nchw") return std::nullopt;
  if (layout == ActivationLayout::nhwc && !is_tf32()) return std::nullopt;
  Conv2dProblem problem = problem_;
  problem.layout = layout;
  double ms = layout == ActivationLayout::nchw && policy.layout == "nchw16c" ? kPreferred : 0;
  const auto ms_here = [&](Direction direction) {
    return form_ms(
        choose_form(*layer_choices_, sparse_.get(), problem, direction, graph.device(), use_),
        problem, direction);
  };
  for (const Direction direction : kDirections) {
    if (choice(direction).algorithm == nullptr) continue;
    if (sparse_ && policy.of(direction) == kSparseAlgorithm) {
      Conv2dProblem blocks = problem;
      blocks.weight_format = sparse_->format();
      const Question question = question_of(blocks, direction, graph.device(), use_);
      const Decision decision = decide_unrun<Conv2dProblem>(policy.of(direction), question);
      if (!decision.error.empty()) return std::nullopt;
      ms += ms_here(direction);
      continue;
    }
    const Question question = question_of(problem, direction, graph.device(), use_);
    const Decision decision = decide_unrun<Conv2dProblem>(policy.of(direction), question);
    if (!decision.error.empty()) return std::nullopt;
    const double dense =
        std::ranges::find(question.verdicts, decision.names.first, &Verdict::algorithm)
            ->estimated_ms;
    ms += sparse_ ? ms_here(direction) : dense;
  }
  return ms;
}

double Conv2dOp::form_ms(const Conv2dForm& form, const Conv2dProblem& problem,
                         Direction direction) const {
  return form.in_blocks ? form.blocks_ms
                        : estimated_ms(*form.choice.algorithm, problem, direction, use_);
}

void Conv2dOp::set_layout(const Graph& graph, ActivationLayout layout) {
  problem_.layout = layout;
  for (const Direction direction : kDirections) {
    Conv2dForm& form = forms_[static_cast<std::size_t>(direction)];
    if (form.choice.algorithm == nullptr) continue;
    form = choose_form(*layer_choices_, sparse_.get(), problem_, direction, graph.device(), use_);
  }
}

std::string Conv2dOp::text() const {
  const char* const layout = problem_.layout == ActivationLayout::nchw   ? ""
                             : problem_.layout == ActivationLayout::nhwc ? " nhwc"
                                                                         : " nchw16c";
  std::string out =
      cat("conv2d ", forms_[0].choice.algorithm->name, layout, norm_ ? " + batch_norm2d" : "",
          residual_at_ > 0 ? " + residual" : "", relu_ ? fused_relu_text(most_) : "");
  for (const Direction direction : kDirections) {
    const Conv2dForm& form = this->form(direction);
    if (form.choice.algorithm == nullptr || form.why_dense.empty()) continue;
    out += cat("; ", name_of(direction), " ", form.choice.algorithm->name, ", dense, because ",
               form.why_dense);
  }
  if (joint_backward() != nullptr) out += "; dx and dw in one pass";
  if (forward_moments() != nullptr) out += "; statistics of y";
  return out;
}

const ForwardMoments* Conv2dOp::forward_moments() const {
  const Conv2dForm& form = this->form(Direction::forward);
  if (!feeds_norm_ || form.in_blocks || problem_.layout != ActivationLayout::nhwc) {
    return nullptr;
  }
  return forward_moments_of(*form.choice.algorithm, problem_);
}

const JointBackward* Conv2dOp::joint_backward() const {
  const Conv2dForm& data = form(Direction::backward_data);
  const Conv2dForm& weight = form(Direction::backward_weight);
  if (!wants_both_ || data.choice.algorithm == nullptr || data.in_blocks || weight.in_blocks ||
      data.choice.algorithm != weight.choice.algorithm) {
    return nullptr;
  }
  return faster_joint_backward_of(*data.choice.algorithm, problem_);
}

std::vector<RanKernel> Conv2dOp::kernels(const Graph& graph) const {
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

bool Conv2dOp::absorb(const Graph& graph, PlanOp& next) {
  if (relu_) return false;
  if (const auto most = fused_relu_bound(graph, next)) {
    most_ = *most;
    return relu_ = true;
  }
  if (residual_at_ > 0) return false;
  const auto* const norm = dynamic_cast<const BatchNormOp*>(&next);
  feeds_norm_ = norm != nullptr && graph.training();
  if (norm != nullptr && !graph.training() && !norm_ && norm->is_plain()) {
    norm_ = norm->fold();
    return true;
  }
  if (dynamic_cast<AddOp*>(&next) == nullptr || next.inputs[0] == next.inputs[1]) return false;
  residual_at_ = inputs.size();  // the graph appends the residual here
  return true;
}

void Conv2dOp::emit_fold(Emitter& builder, Slot w, Slot b) const {
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

// In inference the prologue computes everything that depends only on the weights. A folded w is not
// kept once it is prepared.
Conv2dOp::Weights Conv2dOp::weights(Emitter& builder) {
  const Conv2dWork work = this->work(Direction::forward);
  const bool prepares =
      !builder.training() && work.algorithm->prepared_size(work.problem, Direction::forward) > 0;
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
    prepared = emit_preparation(builder, work, norm_ ? builder.use(w) : builder.value(weight()));
  });
  out.prepared = builder.use(prepared);
  return out;
}

constinit KernelSlot<bool(const Conv2dProblem& problem, Direction direction)>
    conv2d_reads_f32_kernel{"conv2d_reads_f32"};

bool Conv2dOp::takes_operands(Direction direction) const {
  const Conv2dAlgorithm* const algorithm = choice(direction).algorithm;
  if (algorithm == nullptr || !algorithm->takes_half_operands || !is_tf32() ||
      problem_.layout != ActivationLayout::nhwc) {
    return false;
  }
  return use_ == WeightUse::once ||
         !conv2d_reads_f32_kernel.get({.type = algorithm->device})(problem_, direction);
}

const Conv2dAlgorithm* Conv2dOp::nhwc_algorithm(const Graph& graph, Direction direction) const {
  Conv2dProblem problem = problem_;
  problem.layout = ActivationLayout::nhwc;
  const std::string& policy = layer_choices_->policy().of(direction);
  const Decision decision =
      decide_unrun<Conv2dProblem>(policy, question_of(problem, direction, graph.device(), use_));
  if (!decision.error.empty()) return nullptr;
  return conv2d_algorithms(graph.device().type).find(decision.names.first);
}

bool Conv2dOp::may_gain_nhwc(const Graph& graph) const {
  return is_tf32() && layout_ms(graph, ActivationLayout::nhwc).has_value();
}

PlanOp::OperandsRead Conv2dOp::would_read_operands(const Graph& graph) const {
  if (!is_tf32() || layer_choices_->policy().layout == "nchw") return {};
  Conv2dProblem problem = problem_;
  problem.layout = ActivationLayout::nhwc;
  const auto reads = [&](Direction direction) {
    if (choice(direction).algorithm == nullptr) return false;
    const Conv2dAlgorithm* const algorithm = nhwc_algorithm(graph, direction);
    if (algorithm == nullptr || !algorithm->takes_half_operands) return false;
    return use_ == WeightUse::once ||
           !conv2d_reads_f32_kernel.get(graph.device())(problem, direction);
  };
  const bool in_dw = reads(Direction::backward_weight);
  return {.image = reads(Direction::forward) || in_dw,
          .gradient = reads(Direction::backward_data) || in_dw};
}

bool Conv2dOp::reads_operands(const Graph& graph, std::size_t input) const {
  return input == 0 && takes_operands(Direction::forward) &&
         (!graph.wants_gradient(weight()) || takes_operands(Direction::backward_weight));
}

bool Conv2dOp::reads_gradient_operands(const Graph& graph) const {
  const auto reads = [&](ValueId gradient_of, Direction direction) {
    return !graph.wants_gradient(gradient_of) || takes_operands(direction);
  };
  return !relu_ && residual_at_ == 0 && !(has_bias_ && graph.wants_gradient(bias())) && is_tf32() &&
         reads(weight(), Direction::backward_weight) && reads(x(), Direction::backward_data);
}

// Returns the value of x. Returns an undefined tensor when x is the step's input images, because
// their address may change.
Tensor Conv2dOp::images_or_value(Emitter& builder) const {
  return x() == Graph::input() ? Tensor() : builder.value(x());
}

// Throws when the step keeps [N,C,H,W] and the policy names an algorithm that requires NHWC.
void Conv2dOp::check_layout(Device device) const {
  if (!is_tf32()) return;
  for (const Direction direction : kDirections) {
    const Conv2dAlgorithm* const algorithm = choice(direction).algorithm;
    if (algorithm == nullptr || support_of(*algorithm, problem_, direction).yes) continue;
    (void)layer_choices_->get(problem_, direction, device, use_);  // throws the refusal
  }
}

void Conv2dOp::forward(Emitter& builder) {
  check_layout(builder.device());
  const Weights weights = this->weights(builder);
  const bool from_half = takes_operands(Direction::forward);
  if (from_half) builder.make_operands(x());
  const Tensor residual = residual_at_ > 0 ? builder.value(inputs[residual_at_]) : Tensor();
  Tensor moments;
  if (const ForwardMoments* const leaves = forward_moments()) {
    moments = builder.moments_target(output, leaves->parts(problem_));
  }
  emit_forward(builder, work(Direction::forward),
               {.x = from_half ? Tensor() : images_or_value(builder),
                .w = weights.w,
                .b = weights.b,
                .prepared = weights.prepared,
                .y = builder.value(output),
                .x_half = from_half ? builder.operands(x()) : Tensor(),
                .moments = moments},
               {.residual = residual.defined() ? residual.raw_data() : nullptr,
                .relu = relu_,
                .most = most_,
                .residual_type = residual.defined() ? residual.dtype() : DType::f32});
}

void Conv2dOp::backward(Emitter& builder) {
  if (relu_) emit_relu_gradient(builder, output, most_);
  if (residual_at_ > 0 && builder.wants_gradient(inputs[residual_at_])) {
    copy_gradient(builder, output, inputs[residual_at_]);
  }
  if (has_bias_ && builder.wants_gradient(bias())) {
    const Emitter::Target db = builder.gradient_target(bias());
    builder.call([run = conv2d_bias_gradient_kernel.get(builder.device()),
                  dy = builder.gradient(output), db] { run(dy, db.tensor, db.accumulate); });
  }
  if (const JointBackward* const both = joint_backward()) {
    const Emitter::Target dw = builder.gradient_target(weight());
    return builder.assign_gradient(x(), [&](const Tensor& dx) {
      emit_joint_backward(builder, work(Direction::backward_data), *both, images_or_value(builder),
                          builder.gradient(output), builder.value(weight()), dx, dw);
    });
  }
  const auto gradient = [&](bool as_operands) {
    return as_operands ? Tensor() : builder.gradient(output);
  };
  const auto operands = [&](bool as_operands) {
    return as_operands ? builder.gradient_operands(output) : Tensor();
  };
  if (builder.wants_gradient(weight())) {
    const bool from_half = takes_operands(Direction::backward_weight);
    if (from_half) {
      builder.make_operands(x());
      builder.make_gradient_operands(output);
    }
    const Emitter::Target dw = builder.gradient_target(weight());
    emit_backward_weight(builder, work(Direction::backward_weight),
                         from_half ? Tensor() : images_or_value(builder), gradient(from_half), dw,
                         from_half ? builder.operands(x()) : Tensor(), operands(from_half));
  }
  if (!builder.wants_gradient(x())) return;
  const bool from_half = takes_operands(Direction::backward_data);
  if (from_half) builder.make_gradient_operands(output);
  builder.assign_gradient(x(), [&](const Tensor& dx) {
    emit_backward_data(builder, work(Direction::backward_data), gradient(from_half),
                       builder.value(weight()), dx, operands(from_half));
  });
}

namespace {

// Returns whether the policy finds an algorithm in each direction that runs.
bool has_algorithms(const AlgorithmPolicy& policy, const Conv2dProblem& problem,
                    const Graph& graph, ValueId x) {
  if (graph.device().type == DeviceType::cpu || policy.layout == "nchw") return false;
  return std::ranges::all_of(kDirections, [&](Direction direction) {
    const bool runs =
        direction == Direction::forward ||
        (graph.training() && (direction != Direction::backward_data || graph.wants_gradient(x)));
    if (!runs) return true;
    const WeightUse use = graph.training() ? WeightUse::once : WeightUse::often;
    const Question question = question_of(problem, direction, graph.device(), use);
    return decide_unrun<Conv2dProblem>(policy.of(direction), question).error.empty();
  });
}

// Returns whether NCHW is refused and NHWC is accepted: a tf32 algorithm that the policy names may
// refuse [N,C,H,W]. Layouts are chosen when the whole network is known (plan/layouts/); until then
// the layer is described in NHWC.
bool takes_only_nhwc(const AlgorithmPolicy& policy, Conv2dProblem problem, Direction direction,
                     Device device, WeightUse use) {
  if (device.type == DeviceType::cpu || problem.math != MathMode::tf32 || is_half(problem.dtype) ||
      policy.layout == "nchw") {
    return false;
  }
  const auto has_algorithm = [&] {
    const Question question = question_of(problem, direction, device, use);
    return decide_unrun<Conv2dProblem>(policy.of(direction), question).error.empty();
  };
  if (has_algorithm()) return false;
  problem.layout = ActivationLayout::nhwc;
  return has_algorithm();
}

}  // namespace

int Conv2d::describe(Graph& graph, int x) {
  Conv2dProblem problem = this->problem(graph.shape(x));
  if (problem.is_empty()) return graph.refuse("its batch has no samples");
  const bool half = is_half(problem.dtype);
  if (half) problem = with_nhwc(problem);
  // The layer's own forward() runs instead of a compiled operation in two cases: the policy
  // compares two algorithms, or no algorithm supports an fp16/bf16 layer in NHWC.
  const auto checks = [&](Direction direction) {
    return is_check(choices_->policy().of(direction)) &&
           (direction == Direction::forward || graph.training());
  };
  if (std::any_of(std::begin(kDirections), std::end(kDirections), checks) ||
      (half && !has_algorithms(choices_->policy(), problem, graph, x))) {
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
  // Chooses only for directions that run: a refusal in another direction is not an error.
  const WeightUse use = trains ? WeightUse::once : WeightUse::often;
  const Ref<SparseWeights> sparse = half ? Ref<SparseWeights>() : sparse_;
  if (sparse) plan_with_mask(graph, sparse);
  Conv2dForms forms;
  for (const Direction direction : kDirections) {
    const bool runs =
        direction == Direction::forward ||
        (graph.training() && (direction != Direction::backward_data || graph.wants_gradient(x)));
    if (!runs) continue;
    Conv2dProblem asked = problem;
    if (takes_only_nhwc(choices_->policy(), problem, direction, graph.device(), use)) {
      asked.layout = ActivationLayout::nhwc;
    }
    forms[static_cast<std::size_t>(direction)] =
        choose_form(*choices_, sparse.get(), asked, direction, graph.device(), use);
  }
  std::vector<ValueId> inputs{x, w};
  if (bias_.defined()) inputs.push_back(graph.parameter(bias_));
  auto op =
      std::make_unique<Conv2dOp>(problem, bias_.defined(), std::move(forms), choices_, use, sparse);
  if (graph.training() && graph.wants_gradient(x) && graph.wants_gradient(w)) op->want_both();
  return graph.add(std::move(op), std::move(inputs), problem.y_shape());
}

}  // namespace convscope
