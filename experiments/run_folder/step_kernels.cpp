// SPDX-License-Identifier: Apache-2.0
// step_kernels.cpp: the kernel of each layer and direction in a step, for `explain`, layers.csv and
// `bench net --layers`. tests/experiments/explained_kernels_test.cpp compares it with the kernels
// that run (layers/dispatch/kernel_runs.h).
#include "experiments/run_folder/step_kernels.h"

#include <algorithm>
#include <optional>
#include <set>

#include "layers/dispatch/operator_use.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

std::string text_of(const ChosenNames& names) {
  return names.second.empty() ? names.first : cat(names.first, " checked by ", names.second);
}

bool trains(const Module& layer) {
  const std::vector<NamedParameter> parameters = layer.parameters();
  return std::ranges::any_of(parameters,
                             [](const NamedParameter& p) { return p.variable.requires_grad(); });
}

// Returns the layers that compute the gradient of their input. They are read from the static graph,
// in which each value knows whether its gradient is needed. Returns nothing if the network has no
// static graph.
std::optional<std::set<std::string>> layers_with_dx(Module& model, const Shape& input,
                                                    Device device, PlanMode mode) {
  Graph graph(input, mode, device);
  try {
    (void)model(graph.variable(Graph::input()));
  } catch (const NotCompiled&) {
    return std::nullopt;
  }
  std::set<std::string> out;
  for (const auto& op : graph.ops()) {
    for (const RanKernel& ran : op->kernels(graph)) {
      if (ran.direction == Direction::backward_data) out.insert(ran.layer);
    }
  }
  return out;
}

}  // namespace

void StepKernels::add(const std::string& layer, Direction direction, const LayerKernel& kernel) {
  kernels_[{layer, direction}] = kernel;
}

void StepKernels::now_recorded() {
  if (execution == "planned") execution = "recorded";
  for (auto& [key, kernel] : kernels_) {
    if (kernel.execution == "planned") kernel.execution = "recorded";
  }
}

const LayerKernel* StepKernels::find(const std::string& layer, Direction direction) const {
  const auto at = kernels_.find({layer, direction});
  return at == kernels_.end() ? nullptr : &at->second;
}

const std::string& StepKernels::name_of(const std::string& layer, Direction direction) const {
  static const std::string kNothing = "-";
  const LayerKernel* const kernel = find(layer, direction);
  return kernel == nullptr ? kNothing : kernel->kernel;
}

bool StepKernels::any(std::string_view word) const {
  return std::ranges::any_of(
      kernels_, [&](const auto& one) { return one.second.kernel.find(word) != std::string::npos; });
}

const std::string& StepKernels::execution_of(const std::string& layer) const {
  const LayerKernel* const kernel = find(layer, Direction::forward);
  return kernel == nullptr ? execution : kernel->execution;
}

StepKernels planned_kernels(const StepPlan& plan, bool recorded) {
  StepKernels out;
  out.execution = "planned";
  for (const RanKernel& ran : plan.kernels()) {
    out.add(ran.layer, ran.direction,
            {ran.kernel, ran.dynamic ? "dynamic" : "planned", convscope::name_of(ran.layout)});
  }
  if (recorded) out.now_recorded();
  return out;
}

StepKernels dynamic_kernels(Module& model, const Shape& input, Device device, PlanMode mode,
                            const std::string& why) {
  StepKernels out;
  out.why = why;
  const bool training = mode == PlanMode::training;
  const WeightUse use = training ? WeightUse::once : WeightUse::often;
  std::map<const Module*, std::string> names;
  for (const NamedModule& part : model.modules()) names.emplace(part.module, part.name);
  const auto with_dx = layers_with_dx(model, input, device, mode);
  // In a network without a static graph, a layer computes the gradient of its input if a layer with
  // parameters or a quantiser that learns its step precedes it.
  bool behind_parameters = false;
  std::set<std::string> quantised;
  for (const QuantizedTensor& tensor : quantized_tensors(model)) {
    if (!tensor.is_weight && tensor.quantizer->is_active()) quantised.insert(tensor.layer);
  }
  // Returns whether the layer itself or its residual block quantises the layer's input.
  const auto is_quantised = [&](const std::string& name) {
    return std::ranges::any_of(
        quantised, [&](const std::string& by) { return name == by || name.starts_with(by + "."); });
  };
  model.walk({input}, [&](Module& layer, const Shapes& arrives) {
    const std::string& name = names.at(&layer);
    const bool weights = layer.weight().defined() && layer.weight().requires_grad();
    const bool wants_dx =
        with_dx ? with_dx->contains(name) : behind_parameters || is_quantised(name);
    const std::unique_ptr<OperatorUse> heavy = layer.operator_use(arrives[0]);
    for (const Direction direction : kDirections) {
      if (!layer.weight().defined()) break;
      if (direction != Direction::forward && !training) break;
      if (direction == Direction::backward_data && !wants_dx) continue;
      if (direction == Direction::backward_weight && !weights) continue;
      const std::string kernel =
          heavy != nullptr ? text_of(heavy->choose(direction, device, use)) : layer.kind();
      out.add(name, direction, {kernel, "dynamic"});
    }
    behind_parameters = behind_parameters || trains(layer);
  });
  return out;
}

StepKernels kernels_of_step(Module& model, const Shape& input, Device device, PlanMode mode,
                            bool plans, const Loss& loss) {
  std::string why = "the config says so";
  const std::unique_ptr<StepPlan> plan =
      plans ? StepPlan::make(model, input, mode, &why, {}, /*to_show=*/true, loss) : nullptr;
  return plan ? planned_kernels(*plan) : dynamic_kernels(model, input, device, mode, why);
}

}  // namespace convscope
