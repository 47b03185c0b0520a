// SPDX-License-Identifier: Apache-2.0
// conv2d_op.cpp: the convolution as an operation: its rules, the choice of algorithms, the calls of
// their functions, and the operations that it takes over in a compiled step.
#include "layers/conv2d/conv2d_op.h"

#include <algorithm>

#include "framework/graph/rounded_operand.h"
#include "framework/ops/codes/quantize_op.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/conv2d/shared/cuda/reads_f32.h"
#include "layers/dispatch/half_problem.h"
#include "layers/dispatch/layout/half_operands.h"
#include "layers/plan/fused_relu.h"
#include "layers/plan/half_operand_calls.h"
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

void Conv2dOp::compute_on(Conv2dOnCodes codes, ValueId x, ValueId w, ValueId bias,
                          ValueId residual) {
  problem_ = codes.problem;
  forms_ = {codes.form};
  sparse_ = codes.blocks;
  norm_.reset();  // the scales and the bias contain it
  relu_ = codes.relu;
  most_ = codes.most;
  inputs = {x, w};
  has_bias_ = bias != kNoValue;
  if (has_bias_) inputs.push_back(bias);
  residual_at_ = residual == kNoValue ? 0 : inputs.size();
  if (residual != kNoValue) inputs.push_back(residual);
  codes_ = std::move(codes);
}

OperandViews Conv2dOp::views(Emitter& emitter) const {
  OperandViews out;
  if (!codes_) return out;
  const auto meaning = [&](const std::optional<QuantParams>& params) {
    if (!params) return Quantisation{};
    const Tensor scale = emitter.value(params->scale);
    return Quantisation{.scales = scale.data<double>(),
                        .zero_points = params->zero_point == kNoValue
                                           ? nullptr
                                           : emitter.value(params->zero_point).data<std::int32_t>(),
                        .low = params->low,
                        .high = params->high};
  };
  const Graph& graph = emitter.graph();
  out.x = meaning(codes_->x ? codes_->x : graph.desc(x()).quantization);
  out.w = meaning(graph.desc(weight()).quantization);
  out.w.per_channel = true;
  out.y = meaning(graph.desc(output()).quantization);
  if (residual_at_ > 0) out.residual = meaning(graph.desc(residual()).quantization);
  return out;
}

std::optional<Format> Conv2dOp::format(const Graph& graph, ActivationLayout layout) const {
  // The layout of y in f32; a kernel on codes reads x in its own layout.
  if (codes_) return codes_format(layout, ActivationLayout::nchw16c);
  if (is_half(problem_.dtype) && problem_.layout == ActivationLayout::nhwc) {
    if (layout != problem_.layout) return std::nullopt;
    return Format{.type = problem_.dtype};
  }
  const std::optional<double> ms = layout_ms(graph, layout);
  if (!ms) return std::nullopt;
  Format out{.ms = *ms};
  if (layout == ActivationLayout::nchw16c) out.plain_input_ms = layout_ms(graph, kNchwToNchw16c);
  if (layout != ActivationLayout::nhwc) return out;
  out.has_own_kernels = true;
  const auto reads = [&](Direction direction) {
    if (choice(direction).algorithm == nullptr) return false;
    const Conv2dAlgorithm* const algorithm = nhwc_algorithm(graph, direction);
    if (algorithm == nullptr || !algorithm->takes_half_operands) return false;
    Conv2dProblem problem = problem_;
    problem.layout = ActivationLayout::nhwc;
    const bool alone_reads_f32 = conv2d_reads_f32_kernel.get(graph.device())(problem, direction);
    if (!alone_reads_f32) out.ms -= operands_of_call_ms(*algorithm, problem, direction);
    return use_ == WeightUse::once || !alone_reads_f32;
  };
  const bool in_forward = reads(Direction::forward), in_dx = reads(Direction::backward_data);
  const bool in_dw = reads(Direction::backward_weight);
  out.reads_image_operands = in_forward || in_dw;
  out.reads_gradient_operands = in_dx || in_dw;
  return out;
}

std::optional<double> Conv2dOp::layout_ms(const Graph& graph, const ImageLayouts& layout) const {
  const AlgorithmPolicy& policy = layer_choices_->policy();
  std::optional<double> ms = policy.penalty_ms(layout);
  if (!ms || (layout == ActivationLayout::nhwc && !is_tf32())) return std::nullopt;
  Conv2dProblem problem = problem_;
  problem.layout = layout;
  for (const Direction direction : kDirections) {
    if (choice(direction).algorithm == nullptr) continue;
    Conv2dProblem asked = problem;
    if (sparse_ && policy.of(direction) == kSparseAlgorithm) {
      asked.weight_format = sparse_->format();
    }
    const std::optional<double> decided = decided_ms<Conv2dProblem>(
        policy.of(direction), question_of(asked, direction, graph.device(), use_));
    if (!decided) return std::nullopt;
    *ms += sparse_ ? form_ms(choose_form(*layer_choices_, sparse_.get(), problem, direction,
                                         graph.device(), use_),
                             problem, direction)
                   : *decided;
  }
  return ms;
}

double Conv2dOp::form_ms(const Conv2dForm& form, const Conv2dProblem& problem,
                         Direction direction) const {
  return form.in_blocks ? form.blocks_ms
                        : estimated_ms(*form.choice.algorithm, problem, direction, use_);
}

void Conv2dOp::set_layouts(const Graph& graph) {
  if (codes_) return;
  problem_.layout = {graph.layout(x()), graph.layout(output())};
  for (const Direction direction : kDirections) {
    Conv2dForm& form = forms_[static_cast<std::size_t>(direction)];
    if (form.choice.algorithm == nullptr) continue;
    form = choose_form(*layer_choices_, sparse_.get(), problem_, direction, graph.device(), use_);
  }
  const auto takes = [&](ValueId gradient_of, Direction direction) {
    return !graph.wants_gradient(gradient_of) || takes_operands(direction);
  };
  uses.image_as_operands =
      takes_operands(Direction::forward) && takes(weight(), Direction::backward_weight);
  uses.gradient_as_operands =
      !relu_ && residual_at_ == 0 && !(has_bias_ && graph.wants_gradient(bias())) && is_tf32() &&
      takes(weight(), Direction::backward_weight) && takes(x(), Direction::backward_data);
}

std::string Conv2dOp::text() const {
  const ActivationLayout y = problem_.layout.y;
  const std::string layout = y == ActivationLayout::nchw ? "" : cat(" ", name_of(y));
  const bool folds_norm = norm_ || (codes_ && codes_->folds_norm);
  std::string out =
      cat(codes_ ? codes_->layer_kind : "conv2d", " ", forms_[0].choice.algorithm->name,
          codes_ ? cat(" ", problem_.types->text()) : layout, folds_norm ? " + batch_norm2d" : "",
          residual_at_ > 0 ? " + residual" : "", relu_ ? fused_relu_text(most_) : "");
  if (codes_) {
    const std::string& why = forms_[0].why_dense;
    return why.empty() ? out : cat(out, " (dense, because ", why, ")");
  }
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
                   .layout = problem_.layout,
                   .flops = problem_.nominal_flops()});
  };
  add(Direction::forward, true);
  add(Direction::backward_data, graph.wants_gradient(x()));
  add(Direction::backward_weight, graph.wants_gradient(weight()));
  return out;
}

bool Conv2dOp::absorb(const Graph& graph, const Operation& next) {
  if (relu_) return false;
  if (const auto most = fused_relu_bound(graph, next)) {
    most_ = *most;
    return relu_ = true;
  }
  if (residual_at_ > 0) return false;
  const auto* const norm = as<BatchNormOp>(&next);
  feeds_norm_ = norm != nullptr && graph.training();
  if (norm != nullptr && !norm_ && norm->can_fold()) {
    norm_ = norm->fold();
    return true;
  }
  if (norm != nullptr || !adds_residual(graph, next)) return false;
  residual_at_ = inputs.size();  // the graph appends the residual here
  return true;
}

void Conv2dOp::emit_fold(Emitter& emitter, Slot w, Slot b) const {
  emitter.call([norm = *norm_, weight = emitter.value(weight()),
                bias = has_bias_ ? emitter.value(bias()) : Tensor(), to_w = emitter.use(w),
                to_b = emitter.use(b)] {
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

// In a compiled inference the prologue computes everything that depends only on the weights. A
// folded w is not kept once it is prepared. Else names w and b for the next call.
Conv2dOp::Weights Conv2dOp::weights(Emitter& emitter, OperandViews& views) {
  const Conv2dWork work = this->work(Direction::forward);
  const bool prepares = !emitter.graph().training() && !emitter.is_eager() &&
                        work.choice.algorithm->prepared_size(work.problem, Direction::forward) > 0;
  Weights out;
  Slot b_rounded = kNoSlot;
  if (!norm_ && !prepares) {
    out.w = weight_operand(emitter, work, rounded(emitter, weight(), w_rounded_), views);
    if (has_bias_) out.b = rounded(emitter, bias(), b_rounded);
    return out;
  }
  Slot w = kNoSlot;
  if (norm_) {
    const Shape& shape = emitter.graph().shape(weight());
    w = prepares ? emitter.temporary(shape, DType::f32) : emitter.slot(shape, DType::f32);
    const Slot b = emitter.slot({problem_.k}, DType::f32);
    emitter.prologue([&] { emit_fold(emitter, w, b); });
    out.b = emitter.use(b);
    if (!prepares) out.w = emitter.use(w);
  } else if (has_bias_) {
    out.b = emitter.value(bias());
  }
  if (!prepares) return out;
  Slot prepared = kNoSlot;
  emitter.prologue([&] {
    prepared = emit_preparation(emitter, work, norm_ ? emitter.use(w) : emitter.value(weight()));
  });
  out.prepared = emitter.use(prepared);
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

// Throws when the step keeps [N,C,H,W] and the policy names an algorithm that requires NHWC.
void Conv2dOp::check_layout(Device device) const {
  if (!is_tf32()) return;
  for (const Direction direction : kDirections) {
    const Conv2dAlgorithm* const algorithm = choice(direction).algorithm;
    if (algorithm == nullptr || support_of(*algorithm, problem_, direction).yes) continue;
    (void)layer_choices_->get(problem_, direction, device, use_);  // throws the refusal
  }
}

// Returns the residual, or an undefined tensor if there is none. Kernels on codes read an f32
// residual in NCHW16c.
Tensor Conv2dOp::residual_value(Emitter& emitter) const {
  if (residual_at_ == 0) return {};
  const Graph& graph = emitter.graph();
  const Tensor given = emitter.value(residual());
  if (!codes_ || given.dtype() != DType::f32 ||
      graph.layout(residual()) != ActivationLayout::nchw) {
    return given;
  }
  const Shape& images = graph.shape(residual());
  const Slot nchw16c = emitter.slot(stored_shape(images, ActivationLayout::nchw16c), DType::f32);
  emitter.call([given, to = emitter.use(nchw16c), images] { convert_layout(given, images, to); });
  return emitter.use(nchw16c);
}

namespace {

HalfOperands half_operands(Emitter& emitter, ValueId value, Companion kind) {
  return half_operands_in(operands(emitter, value, kind).raw_data());
}

}  // namespace

// Returns the image as an operand of the type that the kernel multiplies. Eager calls round it; the
// backward pass reads the rounded copy.
Operand Conv2dOp::image(Emitter& emitter) {
  if (!emitter.is_eager()) return operand_of(emitter, x());
  return rounded(emitter, x(), x_rounded_);
}

Tensor Conv2dOp::rounded(Emitter& emitter, ValueId value, Slot& slot) const {
  if (slot != kNoSlot) return emitter.use(slot);
  const Tensor given = emitter.value(value);
  return emitter.is_eager() ? rounded_operand(emitter, given, problem_.dtype, slot) : given;
}

void Conv2dOp::forward(Emitter& emitter) {
  check_layout(emitter.device());
  const Conv2dWork work = this->work(Direction::forward);
  const bool from_half = takes_operands(Direction::forward);
  if (from_half) make_operands(emitter, x(), Companion::operands);
  OperandViews views = this->views(emitter);
  const Weights weights = this->weights(emitter, views);  // may emit a call
  const Tensor residual = residual_value(emitter);        // may emit a call
  Operands operands{
      .in = {Operand(), weights.w, weights.b},
      .out = {},
      .epilogue = {.residual = residual.defined() ? residual.raw_data() : nullptr,
                   .relu = relu_,
                   .most = most_,
                   .residual_type = residual.defined() ? residual.dtype() : DType::f32}};
  if (from_half) {
    operands.fp16[0] = half_operands(emitter, x(), Companion::operands);
  } else {
    operands.in[0] = image(emitter);
  }
  const Tensor y = emitter.value(output());
  // The logits [N,K] of a linear layer on codes have no unused lanes after the last channel.
  if (codes_ && y.rank() == 2 && problem_.k % kChannelBlock != 0) {
    const Shape images = problem_.y_shape();
    const Slot lanes = emitter.slot(stored_shape(images, ActivationLayout::nchw16c), DType::f32);
    operands.out[0] = emitter.use(lanes);
    emit_call(emitter, work.choice, work.problem, work.direction, operands, weights.prepared,
              views);
    return emitter.call([from = emitter.use(lanes), images, to = emitter.value(output())] {
      convert_layout(from, images, to.reshape(images));
    });
  }
  if (const ForwardMoments* const kernel = forward_moments()) {
    operands.out[0] = y;
    const Tensor moments = moments_target(emitter, output(), kernel->parts(problem_));
    return emit_forward_moments(emitter, work, *kernel, operands, moments);
  }
  emit_in_type(emitter, problem_.operand_types().y, {y}, [&](const Emitter::Target& to) {
    operands.out[0] = to.tensor;
    emit_call(emitter, work.choice, work.problem, work.direction, operands, weights.prepared,
              views);
  });
}

void Conv2dOp::emit_bias_gradient(Emitter& emitter) const {
  if (!has_bias_ || !emitter.graph().wants_gradient(bias())) return;
  const Emitter::Target db = emitter.gradient_target(bias());
  emitter.call([run = conv2d_bias_gradient_kernel.get(emitter.device()),
                dy = emitter.gradient(output()), db] { run(dy, db.tensor, db.accumulate); });
}

void Conv2dOp::backward(Emitter& emitter) {
  const Graph& graph = emitter.graph();
  if (relu_) emit_relu_gradient(emitter, output(), most_);
  if (residual_at_ > 0 && graph.wants_gradient(inputs[residual_at_])) {
    copy_gradient(emitter, output(), inputs[residual_at_]);
  }
  emit_bias_gradient(emitter);  // a sum of the f32 dy, also in half precision
  if (const JointBackward* const both = joint_backward()) {
    const Emitter::Target dw = emitter.gradient_target(weight());
    return emitter.assign_gradient(x(), [&](const Tensor& dx) {
      emit_joint_backward(emitter, work(Direction::backward_data), *both, operand_of(emitter, x()),
                          emitter.gradient(output()), emitter.value(weight()), dx, dw);
    });
  }
  Slot dy_rounded = kNoSlot;
  if (graph.wants_gradient(weight())) backward_weight(emitter, dy_rounded);
  if (graph.wants_gradient(x())) backward_data(emitter, dy_rounded);
}

void Conv2dOp::backward_weight(Emitter& emitter, Slot& dy_rounded) {
  Operands operands;
  if (takes_operands(Direction::backward_weight)) {
    make_operands(emitter, x(), Companion::operands);
    make_operands(emitter, output(), Companion::gradient_operands);
    operands.fp16 = {half_operands(emitter, x(), Companion::operands),
                     half_operands(emitter, output(), Companion::gradient_operands)};
  } else {
    operands.in = {image(emitter), gradient(emitter, dy_rounded)};
  }
  emit_weight_gradient(emitter, work(Direction::backward_weight), operands, weight());
}

void Conv2dOp::backward_data(Emitter& emitter, Slot& dy_rounded) {
  const Conv2dWork work = this->work(Direction::backward_data);
  const bool from_half = takes_operands(Direction::backward_data);
  if (from_half) make_operands(emitter, output(), Companion::gradient_operands);
  Operands operands;
  OperandViews views;
  operands.in[1] = weight_operand(emitter, work, rounded(emitter, weight(), w_rounded_), views);
  if (from_half) {
    operands.fp16[0] = half_operands(emitter, output(), Companion::gradient_operands);
  } else {
    operands.in[0] = gradient(emitter, dy_rounded);
  }
  emitter.assign_gradient(x(), [&](const Tensor& dx) {
    emit_in_type(emitter, problem_.operand_types().x, {dx}, [&](const Emitter::Target& to) {
      operands.out[0] = to.tensor;
      emit_call(emitter, work.choice, work.problem, work.direction, operands, {}, views);
    });
  });
}

// Returns the gradient of y in the type of the problem.
Tensor Conv2dOp::gradient(Emitter& emitter, Slot& slot) const {
  const Tensor dy = emitter.gradient(output());
  return emitter.is_eager() ? rounded_operand(emitter, dy, problem_.dtype, slot) : dy;
}

// ---- what the operation expects, and which algorithms it chooses

void Conv2dOp::check_operands(const Graph& graph) const {
  const TensorDesc &x = graph.desc(inputs[0]), &w = graph.desc(inputs[1]);
  CONVSCOPE_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, "conv2d",
                  "expected x of type f32 or f64, got ", x.str());
  CONVSCOPE_CHECK(w.dtype == x.dtype, "conv2d", "expected x and w of one type, got ", x.str(),
                  " and ", w.str());
  if (!has_bias_) return;
  const TensorDesc& b = graph.desc(inputs[2]);
  CONVSCOPE_CHECK(b.shape == Shape{w.shape.at(0)} && b.dtype == x.dtype, "conv2d", "expected b [",
                  w.shape.at(0), "] of the type of x because w is ", w.shape, ", got ", b.str());
}

bool Conv2dOp::runs(const Graph& graph, Direction direction) const {
  if (direction == Direction::forward) return true;
  return graph.training() && (direction == Direction::backward_weight || graph.wants_gradient(x()));
}

// Returns whether the policy finds an algorithm for NHWC images in each direction that runs.
bool Conv2dOp::finds_algorithms(const Graph& graph) const {
  const AlgorithmPolicy& policy = layer_choices_->policy();
  if (graph.device().type == DeviceType::cpu || policy.layout == "nchw") return false;
  return std::ranges::all_of(kDirections, [&](Direction direction) {
    if (!runs(graph, direction)) return true;
    const WeightUse use = graph.training() ? WeightUse::once : WeightUse::often;
    const Question question = question_of(problem_, direction, graph.device(), use);
    return decide_unrun<Conv2dProblem>(policy.of(direction), question).error.empty();
  });
}

// Returns whether NCHW is refused and NHWC is accepted: a tf32 algorithm that the policy names may
// refuse [N,C,H,W]. Layouts are chosen when the whole network is known (plan/layouts/); until then
// the algorithm is chosen for NHWC.
bool Conv2dOp::takes_only_nhwc(Direction direction, Device device) const {
  const AlgorithmPolicy& policy = layer_choices_->policy();
  if (device.type == DeviceType::cpu || problem_.math != MathMode::tf32 ||
      is_half(problem_.dtype) || policy.layout == "nchw") {
    return false;
  }
  Conv2dProblem problem = problem_;
  const auto has_algorithm = [&] {
    const Question question = question_of(problem, direction, device, use_);
    return decide_unrun<Conv2dProblem>(policy.of(direction), question).error.empty();
  };
  if (has_algorithm()) return false;
  problem.layout = ActivationLayout::nhwc;
  return has_algorithm();
}

TensorDesc Conv2dOp::bind(Graph& graph) {
  check_operands(graph);
  problem_ = conv2d_problem(graph.shape(x()), graph.shape(weight()), params_, graph.dtype(x()));
  const DType type = graph.dtype(x());
  const bool half = is_half(problem_.dtype);
  if (!graph.is_eager()) {
    if (problem_.is_empty()) graph.refuse("its batch has no samples");
    if (half) problem_ = with_nhwc(problem_);
    // The layer runs eagerly in two cases: the policy compares two algorithms, or no algorithm
    // supports an fp16/bf16 layer in NHWC.
    const auto checks = [&](Direction direction) {
      return is_check(policy(direction)) && runs(graph, direction);
    };
    if (std::ranges::any_of(kDirections, checks) || (half && !finds_algorithms(graph))) {
      throw SymbolicValue();
    }
  }
  if (!half) sparse_ = graph.desc(weight()).kept;  // null in eager execution
  const bool trains = graph.training() && std::ranges::any_of(inputs, [&](ValueId input) {
                        return graph.wants_gradient(input);
                      });
  use_ = trains ? WeightUse::once : WeightUse::often;
  if (sparse_) plan_with_mask(graph, sparse_);
  for (const Direction direction : kDirections) {
    // Chooses only for directions that run: a refusal in another direction is not an error.
    if (!runs(graph, direction)) continue;
    if (graph.is_eager() && direction == Direction::backward_weight &&
        !graph.wants_gradient(weight())) {
      continue;
    }
    Conv2dProblem asked = problem_;
    if (!graph.is_eager() && takes_only_nhwc(direction, graph.device())) {
      asked.layout = ActivationLayout::nhwc;
    }
    forms_[static_cast<std::size_t>(direction)] =
        choose_form(*layer_choices_, sparse_.get(), asked, direction, graph.device(), use_);
  }
  wants_both_ = graph.training() && !graph.is_eager() && graph.wants_gradient(x()) &&
                graph.wants_gradient(weight());
  return {problem_.y_shape(), type};
}

namespace {

bool absorb(const Graph& graph, Operation& first, Operation& next) {
  return static_cast<Conv2dOp&>(first).absorb(graph, next);
}

const bool registered = register_fusions("fuse", {{"conv2d", "batch_norm2d", absorb},
                                                  {"conv2d", "add", absorb},
                                                  {"conv2d", "relu", absorb},
                                                  {"conv2d", "relu6", absorb}});

}  // namespace

}  // namespace convscope
