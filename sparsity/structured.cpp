// SPDX-License-Identifier: Apache-2.0
// structured.cpp: filter and channel pruning: removes whole outputs of a layer, and the columns of
// the next layer that read them.
#include "sparsity/structured.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sparsity/criteria.h"
#include "sparsity/distribution.h"

namespace convscope {
namespace {

// Returns the strength of each output of layer l. With the method filter it is the norm of the
// output's row. With the method channel it is the norm of the columns of the next layer that read
// the output. Each norm is divided by the root mean square of all these norms. Without the division
// a global ranking would drop all outputs of a layer with small weights.
std::vector<float> strengths(const PrunableNetwork& network, std::size_t l, PruneMethod method) {
  const PrunableLayer& layer = network.layers[method == PruneMethod::filter ? l : l + 1];
  const Tensor weight = layer.weight().to(Device{});
  const float* w = weight.data<float>();
  const bool by_row = method == PruneMethod::filter;
  std::vector<double> squares(static_cast<std::size_t>(by_row ? layer.rows : layer.inputs), 0);
  for (std::int64_t k = 0; k < layer.rows; ++k) {
    for (std::int64_t c = 0; c < layer.columns; ++c) {
      const double value = w[k * layer.columns + c];
      squares[static_cast<std::size_t>(by_row ? k : c / layer.span)] += value * value;
    }
  }
  double mean = 0;
  for (const double square : squares) mean += square / static_cast<double>(squares.size());
  std::vector<float> out;
  for (const double square : squares) {
    const double relative = std::sqrt(square / (mean > 0 ? mean : 1));
    out.push_back(std::isnan(relative) ? std::numeric_limits<float>::infinity()
                                       : static_cast<float>(relative));
  }
  return out;
}

}  // namespace

void check_structured(const PrunableNetwork& network) {
  if (!network.in_line()) {
    fail(ErrorKind::kConfig, "sparsity",
         cat("expected a chain of layers because filter and channel pruning cut the next layer "
             "too, got: ",
             network.no_sequence_reason,
             "; the methods magnitude, n_m, block and rigl prune every network"));
  }
  for (const PrunableLayer& layer : network.layers) {
    if (layer.groups == 1) continue;
    fail(ErrorKind::kConfig, "sparsity",
         cat("expected convolutions with groups 1 because filter and channel pruning cut whole "
             "channels, got layer '",
             layer.name, "' with groups ", layer.groups));
  }
}

std::vector<std::vector<std::uint8_t>> kept_outputs(const PrunableNetwork& network,
                                                    const std::vector<bool>& excluded,
                                                    const SparsityOptions& options,
                                                    double sparsity) {
  const std::size_t count = network.layers.size();
  std::vector<std::vector<std::uint8_t>> kept;
  for (const PrunableLayer& layer : network.layers) {
    kept.emplace_back(static_cast<std::size_t>(layer.rows), std::uint8_t{1});
  }
  std::vector<std::size_t> cut;  // layers that lose outputs
  std::vector<const PrunableLayer*> layers;
  std::vector<std::vector<float>> scores;
  std::vector<std::int64_t> counts;
  for (std::size_t l = 0; l + 1 < count; ++l) {
    if (excluded[options.method == PruneMethod::filter ? l : l + 1]) continue;
    cut.push_back(l);
    layers.push_back(&network.layers[l]);
    scores.push_back(strengths(network, l, options.method));
    counts.push_back(network.layers[l].rows);
  }
  if (options.distribution == SparsityDistribution::global) {
    std::vector<float> all;
    for (const auto& layer_scores : scores)
      all.insert(all.end(), layer_scores.begin(), layer_scores.end());
    const std::vector<std::uint8_t> keep =
        drop_weakest(all, std::llround(sparsity * static_cast<double>(all.size())));
    auto from = keep.begin();
    for (const std::size_t l : cut) {
      std::copy(from, from + network.layers[l].rows, kept[l].begin());
      from += network.layers[l].rows;
    }
  } else {
    const std::vector<std::int64_t> zeros =
        rounded_zeros(counts, layer_sparsities(layers, options.distribution, sparsity));
    for (std::size_t i = 0; i < cut.size(); ++i) kept[cut[i]] = drop_weakest(scores[i], zeros[i]);
  }
  return kept;
}

std::vector<Tensor> tied_masks(const PrunableNetwork& network,
                               const std::vector<std::vector<std::uint8_t>>& kept) {
  std::vector<Tensor> masks;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const PrunableLayer& layer = network.layers[l];
    Tensor mask = Tensor::empty(layer.weight().shape());
    float* to = mask.data<float>();
    for (std::int64_t k = 0; k < layer.rows; ++k) {
      for (std::int64_t c = 0; c < layer.columns; ++c) {
        const bool made = kept[l][static_cast<std::size_t>(k)] != 0;
        const bool read = l == 0 || kept[l - 1][static_cast<std::size_t>(c / layer.span)] != 0;
        to[k * layer.columns + c] = made && read ? 1.0f : 0.0f;
      }
    }
    masks.push_back(mask);
  }
  return masks;
}

}  // namespace convscope
