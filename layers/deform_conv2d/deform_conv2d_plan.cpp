// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_plan.cpp: the deformable convolution in a compiled step: the functions of the
// chosen algorithms with prepared arguments.
#include <algorithm>

#include "layers/conv2d/bias_gradient.h"
#include "layers/deform_conv2d/channel_slice.h"
#include "layers/deform_conv2d/deform_conv2d_op.h"
#include "layers/plan/activation_op.h"
#include "layers/plan/operation_op.h"

namespace convscope {
namespace {

using Problem = DeformConv2dProblem;

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

// Works as Conv2dOp::layout_ms(). The policy check:a,b compares its algorithms on [N,C,H,W].
std::optional<double> DeformConv2dOp::layout_ms(const Graph& graph,
                                                ActivationLayout layout) const {
  constexpr double kPreferred = 1e6;  // longer than any layer takes
  const AlgorithmPolicy& policy = layer_choices_->policy();
  const bool plain = layout == ActivationLayout::nchw;
  if (!plain && policy.layout == "nchw") return std::nullopt;
  Problem problem = problem_;
  problem.layout = layout;
  double ms = plain && policy.layout == "nchw16c" ? kPreferred : 0;
  for (const Direction direction : kDirections) {
    if (choice(direction).algorithm == nullptr) continue;
    if (!plain && choice(direction).checked_by != nullptr) return std::nullopt;
    const Question question = question_of(problem, direction, graph.device(), use_);
    const Decision decision = decide_unrun<Problem>(policy.of(direction), question);
    if (!decision.error.empty()) return std::nullopt;
    ms += std::ranges::find(question.verdicts, decision.names.first, &Verdict::algorithm)
              ->estimated_ms;
  }
  return ms;
}

void DeformConv2dOp::set_layout(const Graph& graph, ActivationLayout layout) {
  problem_.layout = layout;
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
                   .layout = problem_.layout});
  }
  return out;
}

void* DeformConv2dOp::prepared_in_step(Emitter& builder, Direction direction) const {
  return builder.workspace(
      choice(direction).algorithm->prepared_size(problem_, direction, WeightUse::once));
}

DeformConv2dTensors DeformConv2dOp::tensors(Emitter& builder, bool images_as_tensor) const {
  const bool images = x() == Graph::input() && !images_as_tensor;
  return {.x = images ? Tensor() : builder.value(x()),
          .w = builder.value(weight()),
          .offset = builder.value(offset()),
          .mask = problem_.mask ? builder.value(mask()) : Tensor(),
          .b = has_bias_ ? builder.value(bias()) : Tensor(),
          .dy = {}};
}

// Runs two algorithms and a comparison, in memory of the allocator.
void DeformConv2dOp::run_checked(Emitter& builder, Direction direction,
                                 const Operands& operands) const {
  builder.call([choice = choice(direction), problem = problem_, direction, operands] {
    execute_deform_conv2d(choice, problem, direction, operands);
  });
}

void DeformConv2dOp::forward(Emitter& builder) {
  constexpr Direction kForward = Direction::forward;
  const DeformConv2dAlgorithm& algorithm = *choice(kForward).algorithm;
  if (choice(kForward).checked_by != nullptr) {
    Operands operands = deform_conv2d_operands(kForward, tensors(builder, true));
    operands.out[0] = builder.value(output);
    return run_checked(builder, kForward, operands);
  }
  // In inference the weights are prepared only once after each change of the weights.
  const bool once = !builder.training() && algorithm.prepared_size(problem_, kForward) > 0;
  Slot kept = kNoSlot;
  if (once) {
    builder.prologue([&] {
      kept = builder.slot({static_cast<std::int64_t>(algorithm.prepared_size(problem_, kForward))},
                          DType::u8);
      const Tensor to = builder.use(kept);
      const Preparation prepare{&algorithm, kForward, builder.value(weight()), address_of(to),
                                builder.workspace(algorithm.workspace_bytes(problem_, kForward))};
      builder.call([prepare, problem = problem_, to] { prepare(problem); });
    });
  }
  const Tensor prepared = once ? builder.use(kept) : Tensor();
  DeformConv2dTensors at{.x = x() == Graph::input() ? Tensor() : builder.value(x()),
                         .w = once ? Tensor() : builder.value(weight()),
                         .offset = builder.value(offset()),
                         .mask = problem_.mask ? builder.value(mask()) : Tensor(),
                         .b = has_bias_ ? builder.value(bias()) : Tensor(),
                         .dy = {}};
  void* const workspace = builder.workspace(algorithm.workspace_bytes(problem_, kForward));
  const Preparation prepare{&algorithm, kForward, at.w,
                            builder.training() ? prepared_in_step(builder, kForward) : nullptr,
                            workspace};
  builder.call([problem = problem_, run = algorithm.forward, images = builder.images(), at, prepare,
                prepared, y = builder.value(output), workspace] {
    const void* const block = prepared.defined() ? prepared.raw_data() : prepare(problem);
    run({problem, at.x.defined() ? at.x.raw_data() : *images, address_of(at.w),
         at.offset.raw_data(), address_of(at.mask), address_of(at.b), y.raw_data(), workspace,
         block});
  });
}

void DeformConv2dOp::backward_weight(Emitter& builder) {
  constexpr Direction kWeight = Direction::backward_weight;
  const DeformConv2dChoice& chosen = choice(kWeight);
  const bool checked = chosen.checked_by != nullptr;
  DeformConv2dTensors at = tensors(builder, checked);
  at.dy = builder.gradient(output);
  const Emitter::Target dw = builder.gradient_target(weight());
  if (checked) {
    Operands operands = deform_conv2d_operands(kWeight, at);
    operands.out[0] = dw.tensor;
    operands.accumulate = dw.accumulate;
    return run_checked(builder, kWeight, operands);
  }
  void* const workspace = builder.workspace(chosen.algorithm->workspace_bytes(problem_, kWeight));
  builder.call([problem = problem_, run = chosen.algorithm->backward_weight,
                images = builder.images(), at, dw, workspace] {
    run({problem, at.x.defined() ? at.x.raw_data() : *images, at.dy.raw_data(),
         at.offset.raw_data(), address_of(at.mask), dw.tensor.raw_data(), dw.accumulate,
         workspace});
  });
}

// One call assigns all needed gradients. If a gradient exists already, the call writes to a
// temporary, which is added after the call.
void DeformConv2dOp::backward_data(Emitter& builder) {
  constexpr Direction kData = Direction::backward_data;
  const DeformConv2dChoice& chosen = choice(kData);
  struct Part {
    ValueId value;
    Slot slot;
  };
  std::vector<Part> parts;
  const auto target_of = [&](ValueId value) {
    if (value == kNoValue || !builder.wants_gradient(value)) return Tensor();
    const Emitter::Target target = builder.gradient_target(value);
    if (!target.accumulate) return target.tensor;
    parts.push_back({value, builder.slot(target.tensor.shape(), DType::f32)});
    return builder.use(parts.back().slot);
  };
  const bool checked = chosen.checked_by != nullptr;
  DeformConv2dTensors at = tensors(builder, checked);
  at.dy = builder.gradient(output);
  const Tensor dx = target_of(x()), doffset = target_of(offset()), dmask = target_of(mask());
  if (checked) {
    Operands operands = deform_conv2d_operands(kData, at);
    operands.out = {dx, doffset, dmask};
    run_checked(builder, kData, operands);
  } else {
    void* const workspace = builder.workspace(chosen.algorithm->workspace_bytes(problem_, kData));
    const Preparation prepare{chosen.algorithm, kData, at.w, prepared_in_step(builder, kData),
                              workspace};
    builder.call([problem = problem_, run = chosen.algorithm->backward_data,
                  images = builder.images(), at, dx, doffset, dmask, prepare, workspace] {
      const void* const prepared = prepare(problem);
      run({problem, at.dy.raw_data(), at.w.raw_data(), at.x.defined() ? at.x.raw_data() : *images,
           at.offset.raw_data(), address_of(at.mask), address_of(dx), address_of(doffset),
           address_of(dmask), workspace, prepared});
    });
  }
  for (const Part& part : parts) builder.add_to_gradient(part.value, part.slot);
}

void DeformConv2dOp::backward(Emitter& builder) {
  if (has_bias_ && builder.wants_gradient(bias())) {
    const Emitter::Target db = builder.gradient_target(bias());
    builder.call([run = conv2d_bias_gradient_kernel.get(builder.device()),
                  dy = builder.gradient(output), db] { run(dy, db.tensor, db.accumulate); });
  }
  if (choice(Direction::backward_weight).algorithm != nullptr) backward_weight(builder);
  if (choice(Direction::backward_data).algorithm != nullptr) backward_data(builder);
}

int DeformConv2d::describe(Graph& graph, int x) {
  const DeformConv2dProblem problem = this->problem(graph.shape(x));
  if (problem.is_empty()) return graph.refuse("its batch has no samples");
  // A half-precision layer rounds its operands in forward(), so it runs as a dynamic graph.
  if (is_half(problem.dtype)) return describe_dynamic(graph, *this, x);
  x = transformed_input(graph, x);
  const ValueId w = transformed_weight(graph, weight_);
  if (x == kNoValue || w == kNoValue) return kNoValue;
  ValueId offset = kNoValue, mask = kNoValue;
  {
    const Graph::Scope scope(graph, "branch");
    offset = branch_->describe(graph, x);
  }
  if (offset != kNoValue && options_.mask) {
    const ValueId logits = describe_operation(
        graph, *this, channel_slice_operation(offset_channels(), mask_channels()), {offset});
    if (logits == kNoValue) return kNoValue;
    mask = graph.add(std::make_unique<ActivationOp>(ActivationOp::Function::sigmoid), {logits},
                     problem.mask_shape());
    offset =
        describe_operation(graph, *this, channel_slice_operation(0, offset_channels()), {offset});
  }
  if (offset == kNoValue || (options_.mask && mask == kNoValue)) return kNoValue;
  std::vector<ValueId> inputs{x, w, offset};
  if (options_.mask) inputs.push_back(mask);
  if (bias_.defined()) inputs.push_back(graph.parameter(bias_));
  const auto wants = [&](ValueId value) {
    return value != kNoValue && graph.wants_gradient(value);
  };
  const bool trains = graph.training() && std::ranges::any_of(inputs, wants);
  const WeightUse use = trains ? WeightUse::once : WeightUse::often;
  std::array<DeformConv2dChoice, 3> chosen;
  for (const Direction direction : kDirections) {
    const bool runs = direction == Direction::forward ? true
                      : direction == Direction::backward_data
                          ? wants(x) || wants(offset) || wants(mask)
                          : wants(w);
    if (!runs) continue;
    chosen[static_cast<std::size_t>(direction)] =
        choices_->get(problem, direction, graph.device(), use);
  }
  return graph.add(
      std::make_unique<DeformConv2dOp>(problem, bias_.defined(), std::move(chosen), choices_, use),
      std::move(inputs), problem.y_shape());
}

}  // namespace convscope
