// SPDX-License-Identifier: Apache-2.0
// eager_op.cpp: a layer that runs eagerly inside a compiled step.
#include "layers/plan/eager_op.h"

#include "framework/graph/emitter.h"
#include "layers/dispatch/operator_use.h"

namespace convscope {
namespace {

class EagerOp final : public Operation {
 public:
  explicit EagerOp(Module& module)
      : Operation("eager"), module_(module), parameters_(eager_inputs(module)) {
    is_recordable = false;
  }

  std::string text() const override { return cat(module_.kind(), " as a dynamic graph"); }
  TensorDesc bind(Graph& graph) override { return {module_.output_shape(graph.shape(inputs[0]))}; }
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
    emitter.call([kept = kept_, &module = module_, wants_dx = graph.wants_gradient(inputs[0]),
                  wants = graph.wants_gradient(output()), x = emitter.value(inputs[0]),
                  y = emitter.value(output())] {
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

  void backward(Emitter& emitter) override {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      gradients.push_back(emitter.gradient_target(inputs[i + 1]).tensor);
    }
    const auto emit = [&](const Tensor& dx) {
      // Naming x in the call keeps its memory from being reused until the layer has run.
      emitter.call([kept = kept_, parameters = parameters_, gradients, dx,
                    x = emitter.value(inputs[0]), dy = emitter.gradient(output())] {
        for (Variable parameter : parameters) parameter.zero_grad();
        const Variable y = std::exchange(kept->y, Variable());
        Variable from = std::exchange(kept->x, Variable());
        if (y.requires_grad()) y.backward(dy.clone());
        if (dx.defined() && from.grad().defined()) {
          dx.copy_from(from.grad());
        } else if (dx.defined()) {
          dx.fill(0);
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
    };
    if (!emitter.graph().wants_gradient(inputs[0])) return emit(Tensor());
    emitter.assign_gradient(inputs[0], emit);
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
