// SPDX-License-Identifier: Apache-2.0
// connectivity.cpp: finds the outputs of a masked network that are on a path from the image to the
// classes.
#include "sparsity/connectivity.h"

#include <algorithm>

namespace convscope {
namespace {

using Flags = std::vector<std::uint8_t>;

// Calls f(k, input) for every output k and every input channel from which a kept weight leads to
// output k.
template <class F>
void for_each_link(const PrunableLayer& layer, const Tensor& mask, F&& f) {
  const float* keep = mask.defined() ? mask.data<float>() : nullptr;
  const std::int64_t rows_in_group = layer.rows / layer.groups;
  for (std::int64_t k = 0; k < layer.rows; ++k) {
    const std::int64_t first = k / rows_in_group * layer.inputs;
    for (std::int64_t c = 0; c < layer.inputs; ++c) {
      const float* from = keep == nullptr ? nullptr : keep + k * layer.columns + c * layer.span;
      if (from == nullptr || std::any_of(from, from + layer.span, [](float v) { return v != 0; })) {
        f(static_cast<std::size_t>(k), static_cast<std::size_t>(first + c));
      }
    }
  }
}

}  // namespace

Connectivity connectivity(const PrunableNetwork& network, const std::vector<Tensor>& masks) {
  const std::size_t count = network.layers.size();
  std::vector<Tensor> here;
  for (const Tensor& mask : masks) here.push_back(mask.defined() ? mask.to(Device{}) : mask);
  Connectivity out;
  std::vector<Flags> reached, reaches;
  for (const PrunableLayer& layer : network.layers) {
    reached.emplace_back(static_cast<std::size_t>(layer.rows), std::uint8_t{0});
    reaches.emplace_back(static_cast<std::size_t>(layer.rows), std::uint8_t{0});
  }
  for (std::size_t l = 0; l < count; ++l) {
    const bool from_outside = l == 0 || !network.in_line();
    for_each_link(network.layers[l], here[l], [&](std::size_t k, std::size_t c) {
      if (from_outside || reached[l - 1][c] != 0) reached[l][k] = 1;
    });
  }
  for (std::size_t l = count; l-- > 0;) {
    if (l + 1 == count || !network.in_line()) {
      std::fill(reaches[l].begin(), reaches[l].end(), std::uint8_t{1});
      continue;
    }
    for_each_link(network.layers[l + 1], here[l + 1], [&](std::size_t k, std::size_t c) {
      if (reaches[l + 1][k] != 0) reaches[l][c] = 1;
    });
  }
  for (std::size_t l = 0; l < count; ++l) {
    Flags alive(reached[l].size());
    for (std::size_t k = 0; k < alive.size(); ++k) {
      alive[k] = reached[l][k] != 0 && reaches[l][k] != 0 ? 1 : 0;
    }
    out.alive_count.push_back(std::count(alive.begin(), alive.end(), std::uint8_t{1}));
    const bool passes =
        std::any_of(reached[l].begin(), reached[l].end(), [](std::uint8_t v) { return v != 0; });
    if (!passes && out.cut_at.empty()) out.cut_at = network.layers[l].name;
    out.alive.push_back(std::move(alive));
  }
  return out;
}

}  // namespace convscope
