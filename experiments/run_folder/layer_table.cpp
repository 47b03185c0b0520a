// SPDX-License-Identifier: Apache-2.0
// layer_table.cpp: the layers of a network: layers.csv, and texts about them in a report.
#include "experiments/run_folder/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "layers/dispatch/operator_use.h"
#include "layers/dispatch/plugin/plugin_algorithms.h"

namespace convscope {
namespace {

void add_once(std::vector<std::string>& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

// Writes CSV without quotes: shapes are 64x6x28x28, those of several outputs 64x6+64x3.
std::string sizes_text(const Shapes& shapes) {
  std::vector<std::string> texts;
  for (const Shape& shape : shapes) {
    std::vector<std::string> sizes;
    for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
    texts.push_back(join(sizes, "x"));
  }
  return join(texts, "+");
}

// Returns "lanes_chain" for "lanes_chain: c1+c2", because other columns name the layers.
std::string short_name(const std::string& kernel) { return kernel.substr(0, kernel.find(':')); }

struct Row {
  std::string name;
  std::string cells;  // columns from `kind` to `backward_weight`
  std::string step;
  std::string layout = "";  // of its images; "": no separate kernels
};

std::string cost_cells(const LayerCost& cost) {
  const std::string numbers = fmt::format("{:.5g},{:.5g},{:.5g}", 1e3 * cost.forward_s,
                                          1e3 * cost.backward_s, cost.kept_bytes / 1048576.0);
  return cat(cost.timed ? numbers : ",,", ",", cost.timed_with);
}

// Returns the plug-in files of a row's kernels, "mine.so", as CSV without quotes.
std::string plugins_in(const Row& row, const LayerKernel* inference) {
  std::string kernels = row.cells + (inference != nullptr ? "," + inference->kernel : "");
  std::ranges::replace(kernels, ' ', ',');  // "mine checked by reference"
  std::vector<std::string> files;
  std::istringstream words(kernels);
  for (std::string word; std::getline(words, word, ',');) {
    const PluginAlgorithm* const from = plugin_of_algorithm("conv2d", word);
    if (from == nullptr) continue;
    std::string file = std::filesystem::path(from->file).filename().string();
    std::ranges::replace(file, ',', '_');
    add_once(files, file);
  }
  return join(files, "+");
}

// Returns the whole table: rows of layers, and other timed work.
std::string with_costs(std::vector<Row> rows, const std::string& execution, const LayerCosts* costs,
                       const StepKernels* inference) {
  std::set<std::string> layers;
  for (const Row& row : rows) layers.insert(row.name);
  std::map<std::string, LayerCost> known;
  if (costs != nullptr && costs->steps() > 0) known = costs->means(layers);
  for (const auto& [name, cost] : known) {
    if (cost.timed && !layers.contains(name)) rows.push_back({name, ",,,,,,", execution});
  }
  std::string csv =
      "layer,kind,output,params,kernel,forward,backward_data,backward_weight,step,"
      "forward_ms,backward_ms,kept_mib,timed_with,inference,plugins,layout\n";
  for (const Row& row : rows) {
    const auto cost = known.find(row.name);
    const LayerKernel* const kernel =
        inference != nullptr ? inference->find(row.name, Direction::forward) : nullptr;
    csv += cat(row.name, ",", row.cells, ",", row.step, ",",
               cost != known.end() ? cost_cells(cost->second) : ",,,", ",",
               kernel != nullptr ? kernel->kernel : "", ",", plugins_in(row, kernel), ",",
               row.layout, "\n");
  }
  return csv;
}

}  // namespace

double forward_flops(const Module& layer, const Shape& input) {
  if (const auto use = layer.operator_use(input)) return use->nominal_flops();
  if (!layer.weight().defined() || layer.weight().shape().rank() != 2) return 0;
  return 2.0 * static_cast<double>(input[0]) * static_cast<double>(layer.weight().value().numel());
}

LayerTable layer_table(Module& model, const Shape& input, Device device, bool plans,
                       const Loss& loss) {
  return layer_table(model, input,
                     kernels_of_step(model, input, device, PlanMode::training, plans, loss));
}

LayerTable layer_table(Module& model, const Shape& input, const StepKernels& kernels,
                       const LayerCosts* costs, const StepKernels* inference) {
  LayerTable table;
  std::vector<Row> rows;
  std::vector<std::string> kernel_sizes, algorithms;
  std::map<const Module*, std::string> names;
  for (const NamedModule& part : model.modules()) names.emplace(part.module, part.name);
  // Parameters of parts that have separate rows are not counted again in the row of their layer.
  std::set<const Variable::State*> counted;
  const auto own_parameters = [&](const Module& layer) {
    std::int64_t count = 0;
    for (const NamedParameter& parameter : layer.parameters()) {
      if (!counted.insert(parameter.variable.state()).second) continue;
      count += parameter.variable.value().numel();
    }
    return count;
  };
  model.walk({input}, [&](Module& layer, const Shapes& arrives) {
    const std::string& name = names.at(&layer);
    const std::vector<NamedModule> parts = layer.modules();
    // A module with a weight is one row, together with its parts, such as the quantisers of its
    // weight and input. A module without a weight has a row for each part.
    if (!layer.weight().defined() && parts.size() > 1) {  // its parts, with unknown shapes
      for (const NamedModule& part : parts) {
        if (part.module == &layer || part.module->modules().size() > 1) continue;
        rows.push_back(
            {.name = name.empty() ? part.name : cat(name, ".", part.name),
             .cells = cat(part.module->kind(), ",,", part.module->parameter_count(), ",,,,"),
             .step = kernels.execution});
      }
      return;
    }
    const std::unique_ptr<OperatorUse> heavy = layer.operator_use(arrives[0]);
    const std::string size = heavy == nullptr ? "" : heavy->kernel();
    std::string cells = cat(layer.kind(), ",", sizes_text(layer.output_shapes(arrives)), ",",
                            own_parameters(layer), ",", size);
    std::vector<std::string> layer_algorithms;
    for (const Direction direction : kDirections) {
      const LayerKernel* const kernel = kernels.find(name, direction);
      const bool has_kernels = kernels.find(name, Direction::forward) != nullptr;
      cells += cat(",", has_kernels ? kernels.name_of(name, direction) : "");
      if (kernel != nullptr) add_once(layer_algorithms, short_name(kernel->kernel));
    }
    const LayerKernel* const forward = kernels.find(name, Direction::forward);
    rows.push_back({.name = name,
                    .cells = cells,
                    .step = kernels.execution_of(name),
                    .layout = forward == nullptr || arrives[0].rank() != 4 ? "" : forward->layout});
    if (heavy == nullptr) return;
    add_once(kernel_sizes, size);
    add_once(algorithms, join(layer_algorithms, "+"));
  });
  table.csv = with_costs(std::move(rows), kernels.execution, costs, inference);
  table.kernel_sizes = join(kernel_sizes, "/");
  table.algorithms = join(algorithms, "/");
  return table;
}

}  // namespace convscope
