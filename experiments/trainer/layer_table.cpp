// SPDX-License-Identifier: Apache-2.0
#include "experiments/trainer/layer_table.h"

#include <algorithm>

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

std::string kernel_text(const Module& layer) {
  for (const NamedParameter& parameter : layer.parameters()) {
    const Shape& shape = parameter.variable.shape();
    if (shape.rank() != 4) continue;
    return shape[2] == shape[3] ? std::to_string(shape[2]) : cat(shape[2], "x", shape[3]);
  }
  return "";
}

}  // namespace

LayerTable layer_table(Module& model, const Shape& input, const ConvConfig& conv) {
  LayerTable table;
  table.csv = "layer,kind,output,params,kernel,forward,backward_data,backward_weight\n";
  std::vector<std::string> kernels, algorithms;
  const std::vector<NamedModule> modules = model.modules();
  Shape shape = input;
  bool in_line = true;  // the layers follow each other, so shapes can be passed on
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto& [name, layer] = modules[i];
    const std::string inside = name.empty() ? "" : name + ".";
    const bool has_children = i + 1 < modules.size() && modules[i + 1].name.starts_with(inside);
    if (has_children) {
      const std::string kind = layer->kind();
      in_line = in_line && (kind == "sequential" || name.empty());
      continue;
    }
    if (in_line) shape = layer->output_shape(shape);
    const bool is_conv = layer->kind() == "conv2d";
    table.csv += cat(name, ",", layer->kind(), ",", in_line ? sizes_text(shape) : "", ",",
                     layer->parameter_count());
    if (is_conv) {
      const Conv2dPolicy& policy = conv.of(name);
      std::vector<std::string> of_layer;
      table.csv += "," + kernel_text(*layer);
      for (Direction direction : kDirections) {
        table.csv += "," + policy.of(direction);
        add_once(of_layer, policy.of(direction));
      }
      add_once(kernels, kernel_text(*layer));
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
