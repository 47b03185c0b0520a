// SPDX-License-Identifier: Apache-2.0
// operation_op.cpp: runs an Operation (framework/autograd/operation.h) in a compiled step, so that
// an operation is written once; also runs a layer that has only a forward().
#include "layers/plan/operation_op.h"

#include "layers/dispatch/operator_use.h"

namespace convscope {
namespace {

// Returns the index of the training step. Must be called while a call of the step runs.
OperationStep step_now(const PlanClock& clock, const Module& module) {
  if (clock.base == nullptr) return {.base = nullptr, .offset = module.step()};
  return {.base = clock.base, .offset = clock.offset};
}

}  // namespace

std::vector<Shape> OperationOp::shapes(const Emitter& builder) const {
  std::vector<Shape> out;
  for (const ValueId input : inputs) out.push_back(builder.shape(input));
  return out;
}

std::optional<double> OperationOp::layout_ms(const Graph& graph,
                                             ActivationLayout layout) const {
  const bool takes =
      layout == ActivationLayout::nhwc ? operation_->takes_nhwc() : operation_->takes_nchw16c();
  return takes ? same_in_both(layout) : PlanOp::layout_ms(graph, layout);
}

// A saved tensor of the shape of an image has the layout of the images.
Shape OperationOp::saved_shape(const Emitter& builder, const Shape& shape) const {
  return shape == builder.shape(output) ? builder.graph().stored_shape(output) : shape;
}

OperationForward OperationOp::forward_arguments(Emitter& builder) {
  OperationForward a;
  for (const ValueId input : inputs) a.x.push_back(builder.value(input));
  a.y = builder.value(output);
  saved_.clear();
  for (const TensorSize& size : operation_->keeps(shapes(builder)).saved) {
    const bool wanted = builder.wants_gradient(output);
    const Shape shape = saved_shape(builder, size.shape);
    saved_.push_back(wanted ? builder.slot(shape, size.dtype) : kNoSlot);
    a.saved.push_back(wanted ? builder.use(saved_.back()) : Tensor());
  }
  return a;
}

// Operations assign their gradients. Where a gradient exists already, the operation writes to a
// temporary first.
OperationBackward OperationOp::backward_arguments(Emitter& builder, std::vector<Part>& to_add) {
  OperationBackward a;
  const OperationKeeps keeps = operation_->keeps(shapes(builder));
  if (keeps.inputs) {
    for (const ValueId input : inputs) a.x.push_back(builder.value(input));
  }
  if (keeps.output) a.y = builder.value(output);
  for (const Slot slot : saved_) a.saved.push_back(builder.use(slot));
  for (const TensorSize& size : keeps.scratch) {
    a.scratch.push_back(builder.use(builder.slot(size.shape, size.dtype)));
  }
  a.dy = builder.gradient(output);
  for (const ValueId input : inputs) {
    if (!builder.wants_gradient(input)) {
      a.dx.emplace_back();
      continue;
    }
    const Emitter::Target target = builder.gradient_target(input);
    if (!target.accumulate) {
      a.dx.push_back(target.tensor);
      continue;
    }
    to_add.push_back({input, builder.slot(target.tensor.shape(), target.tensor.dtype())});
    a.dx.push_back(builder.use(to_add.back().slot));
  }
  return a;
}

void OperationOp::forward(Emitter& builder) {
  builder.call([operation = operation_, a = forward_arguments(builder), clock = builder.clock(),
                module = &module_]() mutable {
    a.step = step_now(*clock, *module);
    operation->forward(a);
  });
}

void OperationOp::backward(Emitter& builder) {
  std::vector<Part> to_add;
  OperationBackward a = backward_arguments(builder, to_add);
  builder.call([operation = operation_, a, clock = builder.clock(), module = &module_]() mutable {
    a.step = step_now(*clock, *module);
    operation->backward(a);
  });
  for (const Part& part : to_add) builder.add_to_gradient(part.value, part.slot);
}

PointwiseOp::Forward OperationOp::forward_pieces(Emitter& builder) {
  OperationForward a;  // x[0] and y are set for each piece
  a.x.emplace_back();
  for (std::size_t i = 1; i < inputs.size(); ++i) a.x.push_back(builder.value(inputs[i]));
  return {.begin = [operation = operation_, a] { operation->begin(a); },
          .run = [operation = operation_, a](
                     const float* v, float* y,
                     std::int64_t count) { operation->forward_piece(a, v, y, count); }};
}

PointwiseOp::Backward OperationOp::backward_pieces(Emitter& builder) {
  if (!builder.wants_gradient(output)) return {};
  OperationBackward a;
  a.x.emplace_back();
  a.dx.emplace_back();
  std::vector<Emitter::Target> targets;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    a.x.push_back(builder.value(inputs[i]));
    const bool wanted = builder.wants_gradient(inputs[i]);
    a.dx.push_back(wanted ? builder.gradient_target(inputs[i]).tensor : Tensor());
  }
  return {.run = [operation = operation_, a](
                     const float* dy, const float* v, float* dv,
                     std::int64_t count) { return operation->backward_piece(a, dy, v, dv, count); },
          .end = [operation = operation_, a](double sum) { operation->end(a, sum); }};
}

ValueId describe_operation(Graph& graph, const Module& module, Ref<const Operation> operation,
                           std::vector<ValueId> x) {
  std::vector<Shape> shapes;
  for (const ValueId value : x) {
    if (value == kNoValue) return kNoValue;
    shapes.push_back(graph.shape(value));
  }
  const Shape output = operation->output_shape(shapes);
  return graph.add(std::make_unique<OperationOp>(std::move(operation), module), std::move(x),
                   output);
}

namespace {

class DynamicOp final : public PlanOp {
 public:
  DynamicOp(Module& module, std::vector<Variable> parameters)
      : module_(module), parameters_(std::move(parameters)) {}

  std::string text() const override { return cat(module_.kind(), " as a dynamic graph"); }
  bool is_recordable() const override { return false; }
  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<RanKernel> out;
    if (!module_.weight().defined()) return out;
    const std::unique_ptr<OperatorUse> heavy = module_.operator_use(graph.shape(inputs[0]));
    for (const Direction direction : kDirections) {
      const bool runs = direction == Direction::forward         ? true
                        : direction == Direction::backward_data ? graph.wants_gradient(inputs[0])
                                                                : !parameters_.empty();
      if (!runs) continue;
      const WeightUse use = graph.training() ? WeightUse::once : WeightUse::often;
      const ChosenNames names =
          heavy ? heavy->choose(direction, graph.device(), use) : ChosenNames{module_.kind(), ""};
      out.push_back(
          {layer, direction,
           names.second.empty() ? names.first : cat(names.first, " checked by ", names.second),
           /*dynamic=*/true});
    }
    return out;
  }

  void forward(Emitter& builder) override {
    kept_ = std::make_shared<Kept>();
    builder.call([kept = kept_, &module = module_, wants_dx = builder.wants_gradient(inputs[0]),
                  wants = builder.wants_gradient(output), x = builder.value(inputs[0]),
                  y = builder.value(output)] {
      if (!wants) {
        const NoGrad no_grad;
        y.copy_from(module.forward(Variable(x)).value());
        return;
      }
      kept->x = Variable(x, wants_dx);
      kept->y = module.forward(kept->x);
      y.copy_from(kept->y.value());
    });
  }

  void backward(Emitter& builder) override {
    std::vector<Tensor> gradients;
    for (const Variable& parameter : parameters_) {
      gradients.push_back(builder.parameter_gradient(parameter).tensor);
    }
    const auto emit = [&](const Tensor& dx) {
      // Naming x in the call keeps its memory from being reused until the dynamic graph has run.
      builder.call([kept = kept_, parameters = parameters_, gradients, dx,
                    x = builder.value(inputs[0]), dy = builder.gradient(output)] {
        for (Variable parameter : parameters) parameter.zero_grad();
        const Variable y = std::exchange(kept->y, Variable());
        Variable from = std::exchange(kept->x, Variable());
        if (y.requires_grad()) y.backward(dy.clone());
        if (dx.defined() && from.grad().defined()) {
          dx.copy_from(from.grad());
        } else if (dx.defined()) {
          dx.fill(0);
        }
        // The dynamic graph may have replaced the gradient tensor. Copies its values and restores
        // the step's own tensor.
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          Tensor& now = parameters[i].state()->grad;
          if (parameters[i].state()->grad_is_zero) {
            gradients[i].fill(0);
          } else if (now.raw_data() != gradients[i].raw_data()) {
            gradients[i].copy_from(now);
          }
          now = gradients[i];
        }
      });
    };
    if (!builder.wants_gradient(inputs[0])) return emit(Tensor());
    builder.assign_gradient(inputs[0], emit);
  }

 private:
  struct Kept {
    Variable x, y;
  };
  Module& module_;
  std::vector<Variable> parameters_;  // that need a gradient
  std::shared_ptr<Kept> kept_;
};

}  // namespace

ValueId describe_dynamic(Graph& graph, Module& module, ValueId x) {
  if (x == kNoValue) return kNoValue;
  std::vector<Variable> parameters;
  for (const NamedParameter& parameter : module.parameters()) {
    if (parameter.variable.requires_grad()) parameters.push_back(parameter.variable);
  }
  const bool trains = !parameters.empty();
  const Shape output = module.output_shape(graph.shape(x));
  return graph.add(std::make_unique<DynamicOp>(module, std::move(parameters)), {x}, output, trains);
}

}  // namespace convscope
