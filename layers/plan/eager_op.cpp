// SPDX-License-Identifier: Apache-2.0
// eager_op.cpp: a layer that runs eagerly inside a compiled step.
#include "layers/plan/eager_op.h"

#include <optional>
#include <span>

#include "framework/graph/simple_operation.h"
#include "layers/dispatch/operator_use.h"

namespace convscope {
namespace {

// A scalar that depends on y, whose gradient is dy. It joins several outputs for one backward pass.
// Inputs: y; the scalar of the outputs before.
class JoinOutputs final : public SimpleOperation {
 public:
  explicit JoinOutputs(Tensor dy) : SimpleOperation("outputs"), dy_(std::move(dy)) {}
  Shape output_shape(const std::vector<Shape>&) const override { return {1}; }
  void run(const Forward& a) const override { a.y.fill(0); }
  void run(const Backward& a) const override {
    if (a.dx[0].defined()) a.dx[0].copy_from(dy_);
    if (a.dx.size() > 1 && a.dx[1].defined()) a.dx[1].copy_from(a.dy);
  }

 private:
  Tensor dy_;
};

class EagerOp final : public Operation {
 public:
  explicit EagerOp(Module& module)
      : Operation("eager"), module_(module), parameters_(eager_inputs(module)) {
    is_recordable = false;
  }

  std::string text() const override { return cat(module_.kind(), " as a dynamic graph"); }
  TensorDesc bind(Graph& graph) override {
    Shapes shapes;
    for (std::size_t i = 0; i < module_.input_count(); ++i) {
      shapes.push_back(graph.shape(inputs[i]));
    }
    shapes = module_.output_shapes(shapes);
    more_outputs.clear();
    for (std::size_t i = 1; i < shapes.size(); ++i) more_outputs.push_back({shapes[i]});
    return {shapes[0]};
  }
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
      out.push_back({.layer = layer,
                     .direction = direction,
                     .kernel = names.second.empty()
                                   ? names.first
                                   : cat(names.first, " checked by ", names.second),
                     .dynamic = true,
                     .flops = heavy ? heavy->nominal_flops() : 0});
    }
    return out;
  }

  void forward(Emitter& emitter) override {
    const Graph& graph = emitter.graph();
    kept_ = std::make_shared<Kept>();
    std::vector<bool> wants_dx;
    for (std::size_t i = 0; i < module_.input_count(); ++i) {
      wants_dx.push_back(graph.wants_gradient(inputs[i]));
    }
    emitter.call([kept = kept_, &module = module_, wants_dx, wants = graph.wants_gradient(output()),
                  x = images(emitter), y = values(emitter, outputs)] {
      std::optional<NoGrad> no_grad;
      if (!wants) no_grad.emplace();
      Variables from;
      for (std::size_t i = 0; i < x.size(); ++i) from.emplace_back(x[i], wants && wants_dx[i]);
      Variables to = module.forward(from);
      CONVSCOPE_CHECK(to.size() == y.size(), module.kind(), "expected ", y.size(),
                      " outputs, as output_shapes() says, got ", to.size());
      for (std::size_t i = 0; i < y.size(); ++i) y[i].copy_from(to[i].value());
      if (wants) *kept = {.x = std::move(from), .y = std::move(to)};
    });
  }

  void backward(Emitter& emitter) override {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      gradients.push_back(emitter.gradient_target(inputs[module_.input_count() + i]).tensor);
    }
    std::vector<Tensor> dy;  // undefined: the loss does not depend on this output
    for (const ValueId output : outputs) {
      const Emitter::Target known = emitter.gradient_target(output);
      dy.push_back(known.accumulate ? known.tensor : Tensor());
    }
    std::vector<Tensor> dx;  // undefined: not needed
    std::vector<std::pair<ValueId, Slot>> to_add;
    for (std::size_t i = 0; i < module_.input_count(); ++i) {
      dx.emplace_back();
      if (!emitter.graph().wants_gradient(inputs[i])) continue;
      const Emitter::Target target = emitter.gradient_target(inputs[i]);
      dx.back() = target.tensor;
      if (!target.accumulate) continue;
      to_add.emplace_back(inputs[i], emitter.slot(target.tensor.shape(), target.tensor.dtype()));
      dx.back() = emitter.use(to_add.back().second);
    }
    // Naming x in the call keeps its memory from being reused until the layer has run.
    emitter.call([kept = kept_, parameters = parameters_, gradients, dy, dx, x = images(emitter)] {
      for (Variable parameter : parameters) parameter.zero_grad();
      Kept done = std::exchange(*kept, {});
      run_backward(done.y, dy);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        if (dx[i].defined() && done.x[i].grad().defined()) {
          dx[i].copy_from(done.x[i].grad());
        } else if (dx[i].defined()) {
          dx[i].fill(0);
        }
      }
      // The backward pass may have replaced the gradient tensor. Copies its values and restores
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
    for (const auto& [value, part] : to_add) emitter.add_to_gradient(value, part);
  }

 private:
  struct Kept {
    Variables x, y;
  };

  static std::vector<Tensor> values(Emitter& emitter, std::span<const ValueId> of) {
    std::vector<Tensor> out;
    for (const ValueId value : of) out.push_back(emitter.value(value));
    return out;
  }
  std::vector<Tensor> images(Emitter& emitter) const {
    return values(emitter, std::span(inputs).first(module_.input_count()));
  }

  // Runs one backward pass from all outputs: a scalar joins them, whose gradients are dy.
  static void run_backward(const Variables& y, const std::vector<Tensor>& dy) {
    Variable joined;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (!dy[i].defined() || !y[i].requires_grad()) continue;
      auto join = std::make_unique<JoinOutputs>(dy[i]);
      joined = joined.defined() ? convscope::apply(std::move(join), {y[i], joined})
                                : convscope::apply(std::move(join), {y[i]});
    }
    if (joined.defined()) joined.backward();
  }

  Module& module_;
  std::vector<Variable> parameters_;  // that need a gradient
  std::shared_ptr<Kept> kept_;
};

}  // namespace

std::vector<Variable> eager_inputs(const Module& module) {
  std::vector<Variable> out;
  for (const NamedParameter& parameter : module.parameters()) {
    if (parameter.variable.requires_grad()) out.push_back(parameter.variable);
  }
  return out;
}

std::unique_ptr<Operation> make_eager_op(Module& module) {
  return std::make_unique<EagerOp>(module);
}

}  // namespace convscope
