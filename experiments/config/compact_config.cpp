// SPDX-License-Identifier: Apache-2.0
// compact_config.cpp: the config of the smaller dense network after structured pruning.
#include "experiments/config/compact_config.h"

#include "layers/layer_graph/connections.h"

namespace convscope {

ExperimentConfig compact_config(const ExperimentConfig& config, const std::string& name,
                                const PrunableNetwork& network, const CompactPlan& plan) {
  ExperimentConfig out = config;
  out.name = name;
  out.sparsity = {};
  std::vector<LayerSpec>& layers = out.model.layers;
  const std::vector<std::string> names = connect_layers(layers).names;
  std::vector<std::int64_t> widths;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const auto width = static_cast<std::int64_t>(plan.kept[l].size());
    if (l + 1 < network.layers.size()) widths.push_back(width);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (names[i] != network.layers[l].name) continue;
      layers[i].options.set(network.layers[l].is_conv ? "out_channels" : "out_features", width);
    }
  }
  if (!layers.empty()) return out;
  if (!out.model.options.has("widths") ||
      out.model.options.integers("widths").size() != widths.size()) {
    fail(ErrorKind::kConfig, "compact",
         cat("expected a network written as `layers:` or a model with the option 'widths', because "
             "the compact one has other widths, got model '",
             config.model.type, "'"));
  }
  out.model.options.set("widths", widths);
  return out;
}

}  // namespace convscope
