// SPDX-License-Identifier: Apache-2.0
// connections.h: which layers of a `layers:` list read which results.
//
// `from` names the inputs of a layer: "c1" is all results of the layer c1, "s.1" is the second
// result of the layer s, "input" is the input of the network. A layer without `from` reads all
// results of the layer before it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "layers/layer_types.h"

namespace convscope {

// One name in `from`. Values are counted as in LayerGraph::pass(): value 0 is the input of the
// network, value i + 1 has the results of layer i.
struct LayerSource {
  std::size_t value = 0;
  std::optional<std::size_t> output = {};  // nothing: all results
  bool operator==(const LayerSource&) const = default;
};

struct Connections {
  struct Mistake {
    std::size_t layer;
    std::string key;    // "name", "from", or "" for the layer itself
    std::size_t entry;  // of the list `from`
    std::string sentence;
  };
  std::vector<std::string> names;  // of all layers; those not given are type + number
  std::vector<std::vector<LayerSource>> sources;
  std::vector<Mistake> mistakes;

  bool is_chain() const;  // each layer reads only the layer before it
};

// Reports names that are given twice or unknown or not yet defined, and layers that nothing reads.
CONVSCOPE_API Connections connect_layers(const std::vector<LayerSpec>& specs);

// Returns the inputs of a layer: the parts of `values` that its sources name.
template <class T>
std::vector<T> gathered(const std::vector<std::vector<T>>& values,
                        const std::vector<LayerSource>& sources) {
  std::vector<T> out;
  for (const LayerSource& source : sources) {
    const std::vector<T>& all = values.at(source.value);
    if (source.output) {
      out.push_back(all.at(*source.output));
    } else {
      out.insert(out.end(), all.begin(), all.end());
    }
  }
  return out;
}

}  // namespace convscope
