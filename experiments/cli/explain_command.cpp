// SPDX-License-Identifier: Apache-2.0
// explain_command.cpp: `convscope explain`: which algorithm each convolution of a config uses in
// each direction, why not the others, and how a step is planned. Nothing is run, no data are read.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "experiments/cli/command.h"
#include "experiments/config/build.h"
#include "experiments/config/build_pruner.h"
#include "experiments/config/conv_layers.h"
#include "experiments/run_folder/step_kernels.h"
#include "experiments/trainer/recorded_steps.h"
#include "framework/io/json_text.h"
#include "framework/parallel.h"
#include "layers/conv2d/select.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  bool json = false;
};

std::string number(const char* format, double value) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// How a step of this network runs, in one mode.
struct Step {
  const char* mode;
  std::unique_ptr<StepPlan> plan;  // null: kernels.why says why
  StepKernels kernels;
};

// "*": the step runs it; "+": the selection's choice, which the step does not run by itself.
const char* mark_of(const Conv2dVerdict& verdict, const std::string& ran) {
  const bool runs = ran == verdict.algorithm || ran.starts_with(verdict.algorithm + " checked by ");
  return runs ? "    * " : verdict.chosen ? "    + " : "      ";
}

void print_verdict(const Conv2dVerdict& verdict, const std::string& ran, std::size_t width) {
  std::cout << mark_of(verdict, ran) << verdict.algorithm
            << std::string(width - verdict.algorithm.size() + 2, ' ');
  if (verdict.accepts) {
    std::cout << number("%10.3f ms", verdict.estimated_ms)
              << number("%10.2f MiB", static_cast<double>(verdict.workspace_bytes) / 1048576.0)
              << number("%10.2f MiB", static_cast<double>(verdict.prepared_bytes) / 1048576.0);
    if (!verdict.reason.empty()) std::cout << "  " << verdict.reason;
  } else {
    std::cout << "refuses: " << verdict.reason;
  }
  std::cout << "\n";
}

void print_text(const std::vector<ConvLayer>& layers, Device device, const StepKernels& training) {
  std::cout
      << "For each convolution and direction: every algorithm with its estimated time, workspace\n"
         "and prepared weights, or why it refuses; * marks the one that the training step runs, + "
         "the choice of\nthe config where the step runs something else, or nothing.\n";
  for (const ConvLayer& conv : layers) {
    std::cout << "\n" << conv.name << "  " << conv.use->problem() << "\n";
    for (Direction direction : kDirections) {
      const std::string& policy = conv.use->policy().of(direction);
      const LayerKernel* const ran = training.find(conv.name, direction);
      const auto verdicts = conv.use->explain(direction, device);
      std::size_t width = 0;
      for (const auto& verdict : verdicts) width = std::max(width, verdict.algorithm.size());
      std::cout << "  " << name_of(direction) << " (" << policy << "), "
                << number("%.4g", conv.use->nominal_flops() * 1e-6) << " MFLOP; "
                << (ran == nullptr ? std::string("not run: nobody asks for the images' gradient")
                                   : cat("runs ", ran->kernel, ", ", ran->execution))
                << "\n";
      for (const auto& verdict : verdicts) {
        print_verdict(verdict, ran == nullptr ? "" : ran->kernel, width);
      }
    }
  }
}

Json as_json(const std::vector<ConvLayer>& layers, Device device) {
  Json out = Json::array();
  for (const ConvLayer& conv : layers) {
    Json directions = Json::object();
    for (Direction direction : kDirections) {
      const std::string& policy = conv.use->policy().of(direction);
      Json list = Json::array();
      for (const auto& verdict : conv.use->explain(direction, device)) {
        list.push_back({{"algorithm", verdict.algorithm},
                        {"accepts", verdict.accepts},
                        {"reason", verdict.reason},
                        {"estimated_ms", verdict.estimated_ms},
                        {"workspace_bytes", verdict.workspace_bytes},
                        {"prepared_bytes", verdict.prepared_bytes},
                        {"chosen", verdict.chosen}});
      }
      directions[std::string(name_of(direction))] = {{"policy", policy}, {"algorithms", list}};
    }
    out.push_back({{"layer", conv.name},
                   {"problem", conv.use->problem()},
                   {"nominal_flops", conv.use->nominal_flops()},
                   {"directions", directions}});
  }
  return out;
}

std::vector<Step> steps_of(const ExperimentConfig& config, Module& model, const Shape& input) {
  std::vector<Step> steps;
  for (const PlanMode mode : {PlanMode::training, PlanMode::inference}) {
    const bool training = mode == PlanMode::training;
    Step step{training ? "training" : "inference", nullptr, {}};
    std::string why = "train.plan is false";
    if (config.train.plan) {
      step.plan = StepPlan::make(model, input, mode, &why, {}, /*to_show=*/true);
    }
    step.kernels = step.plan ? planned_kernels(*step.plan)
                             : dynamic_kernels(model, input, config.device, mode, why);
    if (step.plan && training && config.device.type != DeviceType::cpu) {
      const auto& augment = config.data.augment;
      step.kernels.why =
          recording_obstacle({.scaled_loss = config.precision == ComputePrecision::f16,
                              .augments = augment.mirror || augment.crop_padding > 0});
      if (step.kernels.why.empty()) step.kernels.why = step.plan->why_not_recordable();
      if (step.kernels.why.empty()) step.kernels.now_recorded();
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

// Layer by layer, the kernel of each direction.
void print_kernels(const Step& step, const std::vector<ConvLayer>& layers) {
  if (layers.empty()) return;
  std::vector<std::vector<std::string>> lines = {{"convolution"}};
  for (const Direction direction : kDirections) lines[0].emplace_back(name_of(direction));
  lines[0].emplace_back("step");
  for (const ConvLayer& conv : layers) {
    lines.push_back({conv.name});
    for (const Direction direction : kDirections) {
      lines.back().push_back(step.kernels.name_of(conv.name, direction));
    }
    lines.back().push_back(step.kernels.execution_of(conv.name));
  }
  for (const auto& line : lines) {
    std::cout << " ";
    for (std::size_t i = 0; i < line.size(); ++i) {
      std::size_t width = 0;
      for (const auto& other : lines) width = std::max(width, other[i].size());
      const bool last = i + 1 == line.size();
      std::cout << " " << line[i] << (last ? "" : std::string(width - line[i].size() + 1, ' '));
    }
    std::cout << "\n";
  }
}

void print_steps(const std::vector<Step>& steps, const std::vector<ConvLayer>& layers) {
  for (const Step& step : steps) {
    if (!step.plan) {
      std::cout << "\n" << step.mode << ": dynamic graph, because " << step.kernels.why << "\n";
      print_kernels(step, layers);
      continue;
    }
    const PlanMemory& memory = step.plan->memory();
    std::cout << "\n"
              << step.mode << ": " << step.kernels.execution
              << (step.kernels.why.empty() ? "" : cat(" (not recorded: ", step.kernels.why, ")"))
              << ", " << step.plan->call_count() << " calls, "
              << number("%.2f MiB", static_cast<double>(memory.arena_bytes) / 1048576.0)
              << " (at least "
              << number("%.2f", static_cast<double>(memory.lower_bound_bytes) / 1048576.0)
              << " are needed), " << step.plan->conversions() << " conversions of layout\n";
    print_kernels(step, layers);
    std::cout << "  operations:\n";
    const auto lines = step.plan->lines();
    std::size_t width = 0;
    for (const auto& line : lines) width = std::max(width, line.layer.size());
    for (const auto& line : lines) {
      std::cout << "  " << line.layer << std::string(width - line.layer.size() + 2, ' ')
                << line.shape.str() << "  " << line.text << "\n";
    }
  }
}

Json steps_as_json(const std::vector<Step>& steps) {
  Json out = Json::array();
  for (const Step& step : steps) {
    Json entry = {{"mode", step.mode},
                  {"planned", step.plan != nullptr},
                  {"execution", step.kernels.execution}};
    if (!step.kernels.why.empty()) entry["reason"] = step.kernels.why;
    entry["kernels"] = Json::array();
    for (const auto& [key, kernel] : step.kernels.all()) {
      entry["kernels"].push_back({{"layer", key.first},
                                  {"direction", name_of(key.second)},
                                  {"kernel", kernel.kernel},
                                  {"step", kernel.execution}});
    }
    if (step.plan) {
      const PlanMemory& memory = step.plan->memory();
      entry["calls"] = step.plan->call_count();
      entry["layout_conversions"] = step.plan->conversions();
      entry["arena_bytes"] = memory.arena_bytes;
      entry["arena_lower_bound_bytes"] = memory.lower_bound_bytes;
      entry["kept_bytes"] = memory.kept_bytes;
      entry["operations"] = Json::array();
      for (const auto& line : step.plan->lines()) {
        entry["operations"].push_back(
            {{"layer", line.layer}, {"text", line.text}, {"shape", line.shape.str()}});
      }
    }
    out.push_back(std::move(entry));
  }
  return out;
}

int explain(const Arguments& arguments) {
  std::vector<std::string> overrides = arguments.overrides;
  for (const std::string& text : global_overrides()) overrides.push_back(text);
  const ExperimentConfig config = load_config(arguments.config, overrides);
  set_num_threads(static_cast<int>(config.threads));
  const SampleInfo sample = sample_info(config);
  const std::shared_ptr<Module> model = build_model(config, sample.shape, sample.classes);
  Shape input = {config.data.batch_size};
  for (std::int64_t size : sample.shape) input.push_back(size);
  const std::vector<ConvLayer> layers = conv_layers(*model, input);
  // With the masks that the training attaches; how many steps there are changes no kernel.
  const auto pruner = build_pruner(config, *model, nullptr, sample.shape, /*total_steps=*/1000);
  // As it runs once the quantisers have begun.
  for (const QuantizedTensor& tensor : quantized_tensors(*model)) tensor.quantizer->begin();
  const std::vector<Step> steps = steps_of(config, *model, input);
  if (arguments.json) {
    const Json all = {{"convolutions", as_json(layers, config.device)},
                      {"steps", steps_as_json(steps)}};
    std::cout << json_text(all);
    return 0;
  }
  if (layers.empty()) {
    std::cout << "the network has no convolution\n";
  } else {
    print_text(layers, config.device, steps[0].kernels);
  }
  print_steps(steps, layers);
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->config, "experiment file (YAML)")->required();
  app.add_option("KEY=VALUE", arguments->overrides, "values that replace those of the file");
  app.add_flag("--json", arguments->json, "as one JSON object");
  return [arguments] { return explain(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "explain",
    {.summary = "which algorithm each convolution uses, and why not the others",
     .usage = "explain CONFIG [KEY=VALUE...] [--json]",
     .examples = {"explain experiments/configs/quickstart.yaml conv.algorithm=im2col_gemm"},
     .order = 55,
     .declare = convscope::declare})
