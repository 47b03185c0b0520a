// SPDX-License-Identifier: Apache-2.0
#include "experiments/trainer/layer_table.h"

#include <algorithm>

#include "layers/conv2d/conv2d.h"

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

LayerTable layer_table(Module& model, const Shape& input, Device device) {
  LayerTable table;
  table.csv = "layer,kind,output,params,kernel,forward,backward_data,backward_weight\n";
  std::vector<std::string> kernels, algorithms;
  const std::vector<NamedModule> modules = model.modules();
  Shape shape = input;
  bool in_line = true;  // the layers follow each other, so shapes can be passed on
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto [name, layer] = modules[i];  // copies: i moves on
    const std::string inside = name.empty() ? "" : name + ".";
    const auto is_inside = [&](std::size_t at) {
      return at < modules.size() && modules[at].name.starts_with(inside);
    };
    // A layer with a weight is one row, whatever stands between it and its weight and input.
    if (layer->weight().defined()) {
      while (is_inside(i + 1)) ++i;
    } else if (is_inside(i + 1)) {
      const std::string kind = layer->kind();
      in_line = in_line && (kind == "sequential" || name.empty());
      continue;
    }
    const Shape arrives = shape;
    if (in_line) shape = layer->output_shape(shape);
    table.csv += cat(name, ",", layer->kind(), ",", in_line ? sizes_text(shape) : "", ",",
                     layer->parameter_count());
    const auto* conv = dynamic_cast<const Conv2d*>(layer);
    if (conv != nullptr && in_line) {
      const Conv2dProblem problem = conv->problem(arrives);
      std::vector<std::string> of_layer;
      table.csv += "," + kernel_text(problem);
      for (Direction direction : kDirections) {
        const std::string choice =
            choice_text(select_conv2d(conv->policy().of(direction), problem, direction, device));
        table.csv += "," + choice;
        add_once(of_layer, choice);
      }
      add_once(kernels, kernel_text(problem));
      add_once(algorithms, join(of_layer, "+"));
    } else {
      table.csv += ",,,,";
    }
    table.csv += "\n";
  }
  table.kernel_sizes = join(kernels, "/");
  table.algorithms = join(algorithms, "/");
  return table;
}

}  // namespace convscope
