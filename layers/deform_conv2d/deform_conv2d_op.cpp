// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_op.cpp: the deformable convolution as an operation: its rules, the choice of
// algorithms, and the calls of their functions.
#include "layers/deform_conv2d/deform_conv2d_op.h"

#include <algorithm>

#include "framework/graph/rounded_operand.h"
#include "framework/ops/accumulate.h"
#include "layers/conv2d/bias_gradient.h"

namespace convscope {
namespace {

using Problem = DeformConv2dProblem;

constexpr const char* kOperation = Operator<DeformConv2dProblem>::kOperation;

void* address_of(const Tensor& tensor) { return tensor.defined() ? tensor.raw_data() : nullptr; }

std::string name_of_choice(const DeformConv2dChoice& choice) {
  if (choice.checked_by == nullptr) return choice.algorithm->name;
  return cat(choice.algorithm->name, " checked by ", choice.checked_by->name);
}

// Runs before a call that reads prepared weights.
struct Preparation {
  const DeformConv2dAlgorithm* algorithm;
  Direction direction;
  Tensor w;
  void* prepared;  // null: nothing to do
  void* workspace;

  const void* operator()(const Problem& problem) const {
    if (prepared != nullptr) {
      algorithm->prepare_weights({problem, direction, w.raw_data(), prepared, workspace, {}});
    }
    return prepared;
  }
};

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

void* DeformConv2dOp::prepared_in_step(Emitter& emitter, Direction direction) const {
  return emitter.workspace(
      choice(direction).algorithm->prepared_size(problem_, direction, WeightUse::once));
}

// Returns an input in the type of the problem. The backward pass reads the rounded copy.
Tensor DeformConv2dOp::operand(Emitter& emitter, std::size_t input, bool backward) const {
  if (input >= std::size(rounded_)) {
    Slot rounded = kNoSlot;
    return rounded_operand(emitter, emitter.value(inputs[input]), problem_.dtype, rounded);
  }
  Slot& rounded = rounded_[input];
  if (backward) return saved_operand(emitter, inputs[input], rounded);
  return rounded_operand(emitter, emitter.value(inputs[input]), problem_.dtype, rounded);
}

DeformConv2dTensors DeformConv2dOp::tensors(Emitter& emitter, bool backward,
                                            bool images_as_tensor) const {
  const bool images = x() == Graph::input() && !images_as_tensor;
  return {.x = images ? Tensor() : operand(emitter, 0, backward),
          .w = operand(emitter, 1, backward),
          .offset = operand(emitter, 2, backward),
          .mask = has_mask_ ? operand(emitter, 3, backward) : Tensor(),
          .b = has_bias_ && !backward ? operand(emitter, inputs.size() - 1, false) : Tensor(),
          .dy = {}};
}

void DeformConv2dOp::execute(Emitter& emitter, Direction direction,
                             const Operands& operands) const {
  emitter.call([choice = choice(direction), problem = problem_, direction, operands] {
    execute_deform_conv2d(choice, problem, direction, operands);
  });
}

void DeformConv2dOp::forward(Emitter& emitter) {
  constexpr Direction kForward = Direction::forward;
  const DeformConv2dAlgorithm& algorithm = *choice(kForward).algorithm;
  if (allocates(emitter, kForward)) {
    Operands operands = deform_conv2d_operands(kForward, tensors(emitter, false, true));
    const Tensor y = emitter.value(output());
    const bool half = y.dtype() != problem_.dtype;
    const Tensor to = half ? emitter.use(emitter.slot(y.shape(), problem_.dtype)) : y;
    operands.out[0] = to;
    execute(emitter, kForward, operands);
    if (half) emitter.call([to, y] { convert_kernel.get(y.device())(to, y); });
    return;
  }
  // In inference the weights are prepared only once after each change of the weights.
  const bool once = !emitter.graph().training() && algorithm.prepared_size(problem_, kForward) > 0;
  Slot kept = kNoSlot;
  if (once) {
    emitter.prologue([&] {
      kept = emitter.slot({static_cast<std::int64_t>(algorithm.prepared_size(problem_, kForward))},
                          DType::u8);
      const Tensor to = emitter.use(kept);
      const Preparation prepare{&algorithm, kForward, emitter.value(weight()), address_of(to),
                                emitter.workspace(algorithm.workspace_bytes(problem_, kForward))};
      emitter.call([prepare, problem = problem_, to] { prepare(problem); });
    });
  }
  const Tensor prepared = once ? emitter.use(kept) : Tensor();
  DeformConv2dTensors at{.x = x() == Graph::input() ? Tensor() : emitter.value(x()),
                         .w = once ? Tensor() : emitter.value(weight()),
                         .offset = emitter.value(offset()),
                         .mask = problem_.mask ? emitter.value(mask()) : Tensor(),
                         .b = has_bias_ ? emitter.value(bias()) : Tensor(),
                         .dy = {}};
  void* const workspace = emitter.workspace(algorithm.workspace_bytes(problem_, kForward));
  const Preparation prepare{
      &algorithm, kForward, at.w,
      emitter.graph().training() ? prepared_in_step(emitter, kForward) : nullptr, workspace};
  emitter.call([problem = problem_, run = algorithm.forward, state = emitter.state(), at, prepare,
                prepared, y = emitter.value(output()), workspace] {
    const void* const block = prepared.defined() ? prepared.raw_data() : prepare(problem);
    run({problem, at.x.defined() ? at.x.raw_data() : state->images, address_of(at.w),
         at.offset.raw_data(), address_of(at.mask), address_of(at.b), y.raw_data(), workspace,
         block});
  });
}

void DeformConv2dOp::backward_weight(Emitter& emitter, Slot& dy_rounded) {
  constexpr Direction kWeight = Direction::backward_weight;
  const DeformConv2dChoice& chosen = choice(kWeight);
  DeformConv2dTensors at = tensors(emitter, true, allocates(emitter, kWeight));
  at.dy = rounded_operand(emitter, emitter.gradient(output()), problem_.dtype, dy_rounded);
  const Emitter::Target dw = emitter.gradient_target(weight());
  if (allocates(emitter, kWeight)) {
    const bool half = problem_.dtype != dw.tensor.dtype();
    const Tensor to =
        half ? emitter.use(emitter.slot(dw.tensor.shape(), problem_.dtype)) : dw.tensor;
    Operands operands = deform_conv2d_operands(kWeight, at);
    operands.out[0] = to;
    operands.accumulate = dw.accumulate && !half;
    execute(emitter, kWeight, operands);
    if (!half) return;
    return emitter.call([to, dw] {
      if (dw.accumulate) return accumulate(dw.tensor, to.to(dw.tensor.dtype()));
      convert_kernel.get(to.device())(to, dw.tensor);
    });
  }
  void* const workspace = emitter.workspace(chosen.algorithm->workspace_bytes(problem_, kWeight));
  emitter.call([problem = problem_, run = chosen.algorithm->backward_weight,
                state = emitter.state(), at, dw, workspace] {
    run({problem, at.x.defined() ? at.x.raw_data() : state->images, at.dy.raw_data(),
         at.offset.raw_data(), address_of(at.mask), dw.tensor.raw_data(), dw.accumulate,
         workspace});
  });
}

// One call assigns all needed gradients. If a gradient exists already, the call writes to a
// temporary, which is added after the call.
void DeformConv2dOp::backward_data(Emitter& emitter, Slot& dy_rounded) {
  constexpr Direction kData = Direction::backward_data;
  const DeformConv2dChoice& chosen = choice(kData);
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
  const bool allocates = this->allocates(emitter, kData);
  DeformConv2dTensors at = tensors(emitter, true, allocates);
  at.dy = rounded_operand(emitter, emitter.gradient(output()), problem_.dtype, dy_rounded);
  const Tensor dx = target_of(x()), doffset = target_of(offset()), dmask = target_of(mask());
  if (allocates) {
    Operands operands = deform_conv2d_operands(kData, at);
    operands.out = {dx, doffset, dmask};
    execute(emitter, kData, operands);
  } else {
    void* const workspace = emitter.workspace(chosen.algorithm->workspace_bytes(problem_, kData));
    const Preparation prepare{chosen.algorithm, kData, at.w, prepared_in_step(emitter, kData),
                              workspace};
    emitter.call([problem = problem_, run = chosen.algorithm->backward_data,
                  state = emitter.state(), at, dx, doffset, dmask, prepare, workspace] {
      const void* const prepared = prepare(problem);
      run({problem, at.dy.raw_data(), at.w.raw_data(),
           at.x.defined() ? at.x.raw_data() : state->images, at.offset.raw_data(),
           address_of(at.mask), address_of(dx), address_of(doffset), address_of(dmask), workspace,
           prepared});
    });
  }
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
  if (choice(Direction::backward_weight).algorithm != nullptr) backward_weight(emitter, dy_rounded);
  if (choice(Direction::backward_data).algorithm != nullptr) backward_data(emitter, dy_rounded);
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
