// SPDX-License-Identifier: Apache-2.0
// layer_table.cpp: what a network consists of: layers.csv, and the words about it in a report.
#include "experiments/run_folder/layer_table.h"

#include <algorithm>
#include <map>

#include "layers/dispatch/heavy_use.h"

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

// "lanes_chain" of "lanes_chain: c1+c2": the table's line says which layers.
std::string short_name(const std::string& kernel) { return kernel.substr(0, kernel.find(':')); }

}  // namespace

LayerTable layer_table(Module& model, const Shape& input, Device device, bool plans) {
  return layer_table(model, input,
                     kernels_of_step(model, input, device, PlanMode::training, plans));
}

LayerTable layer_table(Module& model, const Shape& input, const StepKernels& kernels) {
  LayerTable table;
  table.csv = "layer,kind,output,params,kernel,forward,backward_data,backward_weight,step\n";
  std::vector<std::string> kernel_sizes, algorithms;
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
        table.csv += cat(",,,,,", kernels.execution, "\n");
      }
      return;
    }
    begin_row(layer, name, sizes_text(layer.output_shape(arrives)));
    const std::unique_ptr<HeavyUse> heavy = layer.heavy_use(arrives);
    const std::string size = heavy == nullptr ? "" : heavy->kernel();
    table.csv += "," + size;
    std::vector<std::string> of_layer;
    for (const Direction direction : kDirections) {
      const LayerKernel* const kernel = kernels.find(name, direction);
      const bool has_kernels = kernels.find(name, Direction::forward) != nullptr;
      table.csv += cat(",", has_kernels ? kernels.name_of(name, direction) : "");
      if (kernel != nullptr) add_once(of_layer, short_name(kernel->kernel));
    }
    table.csv += cat(",", kernels.execution_of(name), "\n");
    if (heavy == nullptr) return;
    add_once(kernel_sizes, size);
    add_once(algorithms, join(of_layer, "+"));
  });
  table.kernel_sizes = join(kernel_sizes, "/");
  table.algorithms = join(algorithms, "/");
  return table;
}

}  // namespace convscope
