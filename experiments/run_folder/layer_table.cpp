// SPDX-License-Identifier: Apache-2.0
#include "experiments/run_folder/layer_table.h"

#include <algorithm>
#include <map>

#include "layers/conv2d/conv2d.h"
#include "layers/plan/step_plan.h"

namespace convscope {
namespace {

void add_once(std::vector<std::string>& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

// CSV without quotes: shapes are written 64x6x28x28.
std::string sizes_text(const Shape& shape) {
  std::string text;
  for (std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

std::string kernel_text(const Conv2dProblem& problem) {
  return problem.r == problem.s ? std::to_string(problem.r) : cat(problem.r, "x", problem.s);
}

std::string choice_text(const Conv2dChoice& choice) {
  if (choice.checked_by == nullptr) return choice.algorithm->name;
  return cat(choice.algorithm->name, " checked by ", choice.checked_by->name);
}

}  // namespace

LayerTable layer_table(Module& model, const Shape& input, Device device, bool plans) {
  std::unique_ptr<StepPlan> plan;
  if (plans) plan = StepPlan::make(model, input, PlanMode::training, nullptr);
  const std::vector<RanKernel> planned_kernels = plan ? plan->kernels() : std::vector<RanKernel>{};
  LayerTable table;
  table.csv = "layer,kind,output,params,kernel,forward,backward_data,backward_weight\n";
  std::vector<std::string> kernels, algorithms;
  std::map<const Module*, std::string> names;
  for (const NamedModule& part : model.modules()) names.emplace(part.module, part.name);
  const auto begin_row = [&](Module& layer, const std::string& name, const std::string& output) {
    table.csv += cat(name, ",", layer.kind(), ",", output, ",", layer.parameter_count());
  };
  model.walk(input, [&](Module& layer, const Shape& arrives) {
    const std::string& name = names.at(&layer);
    const std::vector<NamedModule> parts = layer.modules();
    // A layer with a weight is one row, whatever stands between it and its weight and input.
    if (!layer.weight().defined() && parts.size() > 1) {  // its parts, in shapes that nobody knows
      for (const NamedModule& part : parts) {
        if (part.module == &layer || part.module->modules().size() > 1) continue;
        begin_row(*part.module, name.empty() ? part.name : cat(name, ".", part.name), "");
        table.csv += ",,,,\n";
      }
      return;
    }
    begin_row(layer, name, sizes_text(layer.output_shape(arrives)));
    const auto* conv = dynamic_cast<const Conv2d*>(&layer);
    if (conv != nullptr) {
      const Conv2dProblem problem = conv->problem(arrives);
      std::vector<std::string> of_layer;
      table.csv += "," + kernel_text(problem);
      for (Direction direction : kDirections) {
        const auto planned =
            std::find_if(planned_kernels.begin(), planned_kernels.end(), [&](const RanKernel& ran) {
              return ran.layer == name && ran.direction == direction && !ran.dynamic;
            });
        const std::string choice = planned != planned_kernels.end()
                                       ? planned->kernel
                                       : choice_text(select_conv2d(conv->policy().of(direction),
                                                                   problem, direction, device));
        table.csv += "," + choice;
        add_once(of_layer, choice);
      }
      add_once(kernels, kernel_text(problem));
      add_once(algorithms, join(of_layer, "+"));
    } else {
      table.csv += ",,,,";
    }
    table.csv += "\n";
  });
  table.kernel_sizes = join(kernels, "/");
  table.algorithms = join(algorithms, "/");
  return table;
}

}  // namespace convscope
