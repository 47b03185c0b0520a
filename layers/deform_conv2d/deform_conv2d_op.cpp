// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_op.cpp: the deformable convolution as an operation: its rules, the choice of
// algorithms, and the calls of their functions.
#include "layers/deform_conv2d/deform_conv2d_op.h"

#include <algorithm>

#include "framework/graph/rounded_operand.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/plan/emit_call.h"

namespace convscope {
namespace {

using Problem = DeformConv2dProblem;

constexpr const char* kOperation = Operator<DeformConv2dProblem>::kOperation;

std::string name_of_choice(const DeformConv2dChoice& choice) {
  if (choice.checked_by == nullptr) return choice.algorithm->name;
  return cat(choice.algorithm->name, " checked by ", choice.checked_by->name);
}

}  // namespace

std::string DeformConv2dOp::text() const {
  return cat("deform_conv2d ", name_of_choice(choice(Direction::forward)),
             problem_.layout == ActivationLayout::nchw ? "" : " nchw16c");
}

// Works as Conv2dOp::format(). The policy check:a,b compares its algorithms on [N,C,H,W].
std::optional<Format> DeformConv2dOp::format(const Graph& graph, ActivationLayout layout) const {
  const AlgorithmPolicy& policy = layer_choices_->policy();
  const std::optional<double> penalty = policy.penalty_ms(layout);
  if (!penalty) return std::nullopt;
  Problem problem = problem_;
  problem.layout = layout;
  Format out{.ms = *penalty, .plain_inputs = ~0u << 2};  // offset and mask
  for (const Direction direction : kDirections) {
    const DeformConv2dChoice& chosen = choice(direction);
    if (chosen.algorithm == nullptr) continue;
    if (layout != ActivationLayout::nchw && chosen.checked_by != nullptr) return std::nullopt;
    const std::optional<double> ms = decided_ms<Problem>(
        policy.of(direction), question_of(problem, direction, graph.device(), use_));
    if (!ms) return std::nullopt;
    out.ms += *ms;
  }
  return out;
}

void DeformConv2dOp::set_layouts(const Graph& graph) {
  problem_.layout = graph.layout(output());
  for (const Direction direction : kDirections) {
    DeformConv2dChoice& chosen = choices_[static_cast<std::size_t>(direction)];
    if (chosen.algorithm == nullptr) continue;
    chosen = layer_choices_->get(problem_, direction, graph.device(), use_);
  }
}

std::vector<RanKernel> DeformConv2dOp::kernels(const Graph&) const {
  std::vector<RanKernel> out;
  for (const Direction direction : kDirections) {
    if (choice(direction).algorithm == nullptr) continue;
    out.push_back({.layer = layer,
                   .direction = direction,
                   .kernel = name_of_choice(choice(direction)),
                   .layout = problem_.layout,
                   .flops = problem_.nominal_flops()});
  }
  return out;
}

// Returns the operands of the next call. In half precision (eager calls only) they are rounded, and
// the backward pass reads the rounded copies of x, w, offset and mask.
Operands DeformConv2dOp::operands(Emitter& emitter, Direction direction, const Tensor& dy,
                                  bool reads_weight) {
  const auto in = [&](std::size_t input, Slot& slot) {
    if (slot != kNoSlot) return emitter.use(slot);
    return rounded_operand(emitter, emitter.value(inputs[input]), problem_.dtype, slot);
  };
  // The comparison of check:a,b reads tensors.
  const bool images = x() == Graph::input() && choice(direction).checked_by == nullptr;
  Slot b = kNoSlot;
  const bool adds_bias = has_bias_ && direction == Direction::forward;
  Operands out =
      deform_conv2d_operands(direction, {.x = images ? Tensor() : in(0, rounded_[0]),
                                         .w = reads_weight ? in(1, rounded_[1]) : Tensor(),
                                         .offset = in(2, rounded_[2]),
                                         .mask = has_mask_ ? in(3, rounded_[3]) : Tensor(),
                                         .b = adds_bias ? in(inputs.size() - 1, b) : Tensor(),
                                         .dy = dy});
  if (images) out.in[direction == Direction::backward_data ? 2 : 0] = operand_of(emitter, x());
  return out;
}

void DeformConv2dOp::emit(Emitter& emitter, Direction direction, const Operands& operands,
                          const Tensor& kept_weights) const {
  const DeformConv2dChoice& chosen = choice(direction);
  if (chosen.checked_by == nullptr) {
    return emit_call(emitter, chosen, problem_, direction, operands, kept_weights);
  }
  emitter.call([chosen, problem = problem_, direction, operands] {
    execute_deform_conv2d(chosen, problem, direction, operands);
  });
}

void DeformConv2dOp::forward(Emitter& emitter) {
  constexpr Direction kForward = Direction::forward;
  const DeformConv2dChoice& chosen = choice(kForward);
  // In a compiled inference the weights are prepared once after each change of the weights.
  Tensor kept;
  if (!emitter.is_eager() && !emitter.graph().training() && chosen.checked_by == nullptr &&
      chosen.algorithm->prepared_size(problem_, kForward) > 0) {
    Slot slot = kNoSlot;
    emitter.prologue([&] {
      slot =
          emit_preparation(emitter, *chosen.algorithm, problem_, kForward, emitter.value(weight()));
    });
    kept = emitter.use(slot);
  }
  Operands operands = this->operands(emitter, kForward, {}, !kept.defined());
  emit_in_type(emitter, problem_.dtype, {emitter.value(output())}, [&](const Emitter::Target& to) {
    operands.out[0] = to.tensor;
    emit(emitter, kForward, operands, kept);
  });
}

void DeformConv2dOp::backward_weight(Emitter& emitter, const Tensor& dy) {
  Operands operands = this->operands(emitter, Direction::backward_weight, dy, false);
  emit_in_type(emitter, problem_.dtype, emitter.gradient_target(weight()),
               [&](const Emitter::Target& dw) {
                 operands.out[0] = dw.tensor;
                 operands.accumulate = dw.accumulate;
                 emit(emitter, Direction::backward_weight, operands);
               });
}

// One call assigns all needed gradients. If a gradient exists already, the call writes to a
// temporary, which is added after the call.
void DeformConv2dOp::backward_data(Emitter& emitter, const Tensor& dy) {
  struct Part {
    Slot slot;
    Emitter::Target to;
  };
  std::vector<Part> parts;
  const auto target_of = [&](ValueId value) {
    if (value == kNoValue || !emitter.graph().wants_gradient(value)) return Tensor();
    const Emitter::Target target = emitter.gradient_target(value);
    if (!target.accumulate && target.tensor.dtype() == problem_.dtype) return target.tensor;
    parts.push_back({emitter.slot(target.tensor.shape(), problem_.dtype), target});
    return emitter.use(parts.back().slot);
  };
  Operands operands = this->operands(emitter, Direction::backward_data, dy, true);
  operands.out = {target_of(x()), target_of(offset()), target_of(mask())};
  emit(emitter, Direction::backward_data, operands);
  for (const Part& part : parts) {
    emitter.call([from = emitter.use(part.slot), to = part.to] {
      if (to.accumulate) return accumulate(to.tensor, from.to(to.tensor.dtype()));
      convert_kernel.get(from.device())(from, to.tensor);
    });
  }
}

void DeformConv2dOp::backward(Emitter& emitter) {
  if (has_bias_ && emitter.graph().wants_gradient(bias())) {
    const Emitter::Target db = emitter.gradient_target(bias());
    emitter.call([run = conv2d_bias_gradient_kernel.get(emitter.device()),
                  dy = emitter.gradient(output()), db] { run(dy, db.tensor, db.accumulate); });
  }
  Slot dy_rounded = kNoSlot;
  const auto dy = [&] {
    return rounded_operand(emitter, emitter.gradient(output()), problem_.dtype, dy_rounded);
  };
  if (choice(Direction::backward_weight).algorithm != nullptr) backward_weight(emitter, dy());
  if (choice(Direction::backward_data).algorithm != nullptr) backward_data(emitter, dy());
}

void DeformConv2dOp::check_operands(const Graph& graph) const {
  const TensorDesc& x = graph.desc(inputs[0]);
  CONVSCOPE_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, kOperation,
                  "expected x of type f32 or f64, got ", x.str());
  const auto check = [&](const char* name, ValueId value, const Shape& shape) {
    const TensorDesc& operand = graph.desc(value);
    CONVSCOPE_CHECK(operand.shape == shape && operand.dtype == x.dtype, kOperation, "expected ",
                    name, " ", shape, " of the type of x because the problem is ", problem_.text(),
                    ", got ", operand.str());
  };
  check("w", weight(), problem_.w_shape());
  check("offset", offset(), problem_.offset_shape());
  if (has_mask_) check("mask", mask(), problem_.mask_shape());
  if (has_bias_) check("b", bias(), {problem_.k});
}

TensorDesc DeformConv2dOp::bind(Graph& graph) {
  const DType type = graph.dtype(x());
  problem_ =
      deform_conv2d_problem(graph.shape(x()), graph.shape(weight()), params_, has_mask_, type);
  check_operands(graph);
  if (!graph.is_eager()) {
    if (problem_.is_empty()) graph.refuse("its batch has no samples");
    if (is_half(problem_.dtype)) throw SymbolicValue();  // it rounds its operands: eagerly
  }
  const auto wants = [&](ValueId value) {
    return value != kNoValue && graph.wants_gradient(value);
  };
  const bool trains = graph.training() && std::ranges::any_of(inputs, wants);
  use_ = trains ? WeightUse::once : WeightUse::often;
  for (const Direction direction : kDirections) {
    const bool runs = direction == Direction::forward ? true
                      : direction == Direction::backward_data
                          ? wants(x()) || wants(offset()) || wants(mask())
                          : wants(weight());
    if (!runs) continue;
    choices_[static_cast<std::size_t>(direction)] =
        layer_choices_->get(problem_, direction, graph.device(), use_);
  }
  return {problem_.y_shape(), type};
}

}  // namespace convscope
