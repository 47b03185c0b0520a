// SPDX-License-Identifier: Apache-2.0
// explanation.cpp: the facts that `convscope explain` collects about a config.
#include "experiments/explain/explanation.h"

#include <algorithm>

#include "experiments/config/build.h"
#include "experiments/config/no_memory.h"
#include "experiments/trainer/recorded_steps.h"
#include "framework/int_math.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

struct Network {
  std::shared_ptr<Module> model;
  std::unique_ptr<Pruner> pruner;
  Shape input;
};

// Returns the network with the pruning masks that training attaches, and with its quantisers
// switched on.
Network network_of(const ExperimentConfig& config, const SampleInfo& sample) {
  Network out{build_model(config, sample.shape, sample.classes), nullptr,
              batch_shape(ceil_div(config.data.batch_size, config.train.accumulate), sample.shape)};
  // The number of steps does not affect the kernels.
  out.pruner = build_pruner(config, *out.model, nullptr, sample.shape, /*total_steps=*/1000);
  // Sparse kernels depend on the masks, so prune now as at the end of the schedule.
  if (out.pruner && parse_sparsity(config.sparsity).execute == SparseExecution::sparse) {
    out.pruner->prune_now();
  }
  for (const QuantizedTensor& tensor : quantized_tensors(*out.model)) tensor.quantizer->begin();
  return out;
}

void make_step(const ExperimentConfig& config, Module& model, const Shape& input, PlanMode mode,
               ExplainedStep& step) {
  std::string why = "train.plan is false";
  if (config.train.plan) {
    step.plan =
        StepPlan::make(model, input, mode, &why, {}, /*to_show=*/true, Loss(config.train.loss));
  }
  step.kernels = step.plan ? planned_kernels(*step.plan)
                           : dynamic_kernels(model, input, config.device, mode, why);
  if (!step.plan || mode != PlanMode::training || config.device.type == DeviceType::cpu) return;
  const auto& augment = config.data.augment;
  step.kernels.why = recording_obstacle(
      {.augments = augment.mirror || augment.crop_padding > 0,
       .has_pixel_labels = dataset_types().get(config.data.set).label_shape != nullptr,
       .counts_labels =
           config.train.accumulate > 1 && Loss(config.train.loss).weighted_classes() > 0});
  if (step.kernels.why.empty()) step.kernels.why = step.plan->why_not_recordable();
  if (step.kernels.why.empty()) step.kernels.now_recorded();
}

std::vector<ExplainedStep> steps_of(const ExperimentConfig& config, Module& model,
                                    const Shape& input, bool may_refuse) {
  std::vector<ExplainedStep> steps;
  for (const PlanMode mode : {PlanMode::training, PlanMode::inference}) {
    ExplainedStep step{mode == PlanMode::training ? "training" : "inference", nullptr, {}, ""};
    try {
      make_step(config, model, input, mode, step);
    } catch (const Error& error) {
      if (!may_refuse || error.kind() != ErrorKind::kUnavailable) throw;
      step.plan.reset();
      step.kernels = {};
      step.error = error.what();
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

// Returns the kernels that the step would have if every layer used `auto`. This answer is needed
// when the config names an algorithm that refuses its problem.
StepKernels kernels_with_auto(ExperimentConfig config, const SampleInfo& sample) {
  config.conv = {};
  for (LayerSpec& layer : config.model.layers) {
    if (layer.options.has("algorithm")) layer.options.set("algorithm", std::string("auto"));
  }
  const Network network = network_of(config, sample);
  return kernels_of_step(*network.model, network.input, config.device, PlanMode::training,
                         config.train.plan, Loss(config.train.loss));
}

}  // namespace

bool ExplainedLayer::is_refused() const {
  return std::ranges::any_of(directions, &ExplainedDirection::is_refused);
}

Explanation explain_config(const ExperimentConfig& config) {
  return explain_config(config, sample_info(config));
}

Explanation explain_config(const ExperimentConfig& config, const SampleInfo& sample) {
  const std::unique_ptr<UnbackedMemory> nothing = no_memory(config);
  Network network = network_of(config, sample);
  Explanation out{config, network.input, network.model, std::move(network.pruner), {}, {}};
  bool refuses = false;
  for (const ConvLayer& conv : conv_layers(*network.model, network.input)) {
    ExplainedLayer layer{conv, {}};
    for (const Direction direction : kDirections) {
      ExplainedDirection& of = layer.directions[static_cast<std::size_t>(direction)];
      of.policy = conv.use->policy().of(direction);
      of.decision = conv.use->decision(direction, config.device);
      of.verdicts = conv.use->explain(direction, config.device);
      refuses = refuses || !of.decision.error.empty();
    }
    out.layers.push_back(std::move(layer));
  }
  out.steps = steps_of(config, *network.model, network.input, refuses);
  const StepKernels& training = out.steps[0].kernels;
  const bool runs = out.steps[0].error.empty();
  const StepKernels asked = runs ? training : kernels_with_auto(config, sample);
  for (ExplainedLayer& layer : out.layers) {
    for (const Direction direction : kDirections) {
      ExplainedDirection& of = layer.directions[static_cast<std::size_t>(direction)];
      of.asked = asked.find(layer.conv.name, direction) != nullptr;
      const LayerKernel* const ran = training.find(layer.conv.name, direction);
      if (ran == nullptr) continue;
      of.ran = *ran;
      const auto layout = std::ranges::find(kImageLayouts, ran->layout,
                                            [](const ImageLayouts& of) { return name_of(of); });
      if (layout == std::end(kImageLayouts) || *layout == ActivationLayout::nchw) continue;
      of.verdicts = layer.conv.use->explain(direction, config.device, *layout);
      of.decision = layer.conv.use->decision(direction, config.device, *layout);
    }
  }
  return out;
}

std::string acceptance_text(const ExplainedDirection& of) {
  std::vector<std::string> names;
  for (const Verdict& one : of.verdicts) {
    if (one.accepts && one.auto_ok) names.push_back(one.algorithm);
  }
  std::ranges::sort(names);
  return names.empty() ? "no algorithm here accepts it" : cat("accepted by ", join(names));
}

std::string directions_text(const ExplainedLayer& layer, const std::vector<Direction>& directions) {
  std::size_t asked = 0;
  for (const ExplainedDirection& of : layer.directions) asked += of.asked ? 1 : 0;
  if (directions.size() == asked) return "";
  std::vector<std::string> names;
  for (const Direction direction : directions) names.emplace_back(name_of(direction));
  return join(names);
}

}  // namespace convscope
