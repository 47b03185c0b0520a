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
#include "experiments/config/conv_layers.h"
#include "framework/parallel.h"
#include "layers/conv2d/select.h"
#include "layers/plan/step_plan.h"

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

void print_verdict(const Conv2dVerdict& verdict, std::size_t width) {
  std::cout << (verdict.chosen ? "    * " : "      ") << verdict.algorithm
            << std::string(width - verdict.algorithm.size() + 2, ' ');
  if (verdict.accepts) {
    std::cout << number("%10.3f ms", verdict.estimated_ms)
              << number("%10.2f MiB", static_cast<double>(verdict.workspace_bytes) / 1048576.0);
    if (!verdict.reason.empty()) std::cout << "  " << verdict.reason;
  } else {
    std::cout << "refuses: " << verdict.reason;
  }
  std::cout << "\n";
}

void print_text(const std::vector<ConvLayer>& layers, Device device) {
  std::cout
      << "For each convolution and direction: every algorithm with its estimated time and its "
         "workspace,\nor why it refuses; * marks the one that the config chooses.\n";
  for (const ConvLayer& conv : layers) {
    std::cout << "\n" << conv.name << "  " << conv.problem.text() << "\n";
    for (Direction direction : kDirections) {
      const std::string& policy = conv.layer->policy().of(direction);
      const auto verdicts = explain_conv2d(policy, conv.problem, direction, device);
      std::size_t width = 0;
      for (const auto& verdict : verdicts) width = std::max(width, verdict.algorithm.size());
      std::cout << "  " << name_of(direction) << " (" << policy << "), "
                << number("%.4g", conv.problem.nominal_flops() * 1e-6) << " MFLOP\n";
      for (const auto& verdict : verdicts) print_verdict(verdict, width);
    }
  }
}

Json as_json(const std::vector<ConvLayer>& layers, Device device) {
  Json out = Json::array();
  for (const ConvLayer& conv : layers) {
    Json directions = Json::object();
    for (Direction direction : kDirections) {
      const std::string& policy = conv.layer->policy().of(direction);
      Json list = Json::array();
      for (const auto& verdict : explain_conv2d(policy, conv.problem, direction, device)) {
        list.push_back({{"algorithm", verdict.algorithm},
                        {"accepts", verdict.accepts},
                        {"reason", verdict.reason},
                        {"estimated_ms", verdict.estimated_ms},
                        {"workspace_bytes", verdict.workspace_bytes},
                        {"chosen", verdict.chosen}});
      }
      directions[std::string(name_of(direction))] = {{"policy", policy}, {"algorithms", list}};
    }
    out.push_back({{"layer", conv.name},
                   {"problem", conv.problem.text()},
                   {"nominal_flops", conv.problem.nominal_flops()},
                   {"directions", directions}});
  }
  return out;
}

// How a step of this network runs, in one mode.
struct Step {
  const char* mode;
  std::unique_ptr<StepPlan> plan;  // null: why_not says why
  std::string why_not;
};

std::vector<Step> steps_of(const ExperimentConfig& config, Module& model, const Shape& input) {
  std::vector<Step> steps;
  for (const PlanMode mode : {PlanMode::training, PlanMode::inference}) {
    Step step{mode == PlanMode::training ? "training" : "inference", nullptr, ""};
    if (!config.train.plan) {
      step.why_not = "train.plan is false";
    } else if (config.quant || !config.sparsity.values().empty()) {
      step.why_not = "weights or values pass through quantisers or masks";
    } else {
      step.plan = StepPlan::make(model, input, mode, &step.why_not);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

void print_steps(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (!step.plan) {
      std::cout << "\n" << step.mode << ": dynamic graph, because " << step.why_not << "\n";
      continue;
    }
    const PlanMemory& memory = step.plan->memory();
    std::cout << "\n"
              << step.mode << ": planned, " << step.plan->call_count() << " calls, "
              << number("%.2f MiB", static_cast<double>(memory.arena_bytes) / 1048576.0)
              << " (at least "
              << number("%.2f", static_cast<double>(memory.lower_bound_bytes) / 1048576.0)
              << " are needed), " << step.plan->conversions() << " conversions of layout\n";
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
    Json entry = {{"mode", step.mode}, {"planned", step.plan != nullptr}};
    if (!step.plan) {
      entry["reason"] = step.why_not;
    } else {
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
  const std::vector<Step> steps = steps_of(config, *model, input);
  if (arguments.json) {
    const Json all = {{"convolutions", as_json(layers, config.device)},
                      {"steps", steps_as_json(steps)}};
    std::cout << all.dump(2) << "\n";
    return 0;
  }
  if (layers.empty()) {
    std::cout << "the network has no convolution\n";
  } else {
    print_text(layers, config.device);
  }
  print_steps(steps);
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
