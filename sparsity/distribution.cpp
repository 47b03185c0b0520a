// SPDX-License-Identifier: Apache-2.0
// distribution.cpp: how many weights each layer may keep.
#include "sparsity/distribution.h"

#include <algorithm>
#include <cmath>

namespace convscope {
namespace {

// Returns (K + C + R + S) / (K C R S); for a linear layer (K + C) / (K C), where C is the number of
// features.
double erk_weight(const PrunableLayer& layer) {
  const auto sum = layer.channels_out + layer.channels_in +
                   (layer.is_conv ? layer.kernel_h + layer.kernel_w : 0);
  return static_cast<double>(sum) / static_cast<double>(layer.weights());
}

std::vector<double> erk(const std::vector<const PrunableLayer*>& layers, double sparsity) {
  std::vector<double> density(layers.size(), 0);
  std::vector<bool> whole(layers.size(), false);
  double all = 0;
  for (const PrunableLayer* layer : layers) all += static_cast<double>(layer->weights());
  for (;;) {
    double left = (1 - sparsity) * all;  // kept weights for layers that are not fully dense
    double raw = 0;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const auto weights = static_cast<double>(layers[l]->weights());
      if (whole[l]) {
        left -= weights;
      } else {
        raw += erk_weight(*layers[l]) * weights;
      }
    }
    const double epsilon = raw > 0 ? std::max(left, 0.0) / raw : 0;
    bool again = false;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      density[l] = whole[l] ? 1.0 : epsilon * erk_weight(*layers[l]);
      if (density[l] > 1) {
        whole[l] = again = true;
      }
    }
    if (!again) return density;
  }
}

}  // namespace

std::vector<double> layer_sparsities(const std::vector<const PrunableLayer*>& layers,
                                     SparsityDistribution distribution, double sparsity) {
  if (distribution != SparsityDistribution::erk) {
    return std::vector<double>(layers.size(), sparsity);
  }
  std::vector<double> out = erk(layers, sparsity);
  for (double& share : out) share = std::clamp(1 - share, 0.0, 1.0);
  return out;
}

std::vector<std::int64_t> rounded_zeros(const std::vector<std::int64_t>& counts,
                                        const std::vector<double>& sparsities) {
  std::vector<std::int64_t> zeros;
  double cumulated = 0;
  std::int64_t before = 0;
  for (std::size_t l = 0; l < counts.size(); ++l) {
    cumulated += sparsities[l] * static_cast<double>(counts[l]);
    const std::int64_t until = std::llround(cumulated);
    zeros.push_back(std::clamp<std::int64_t>(until - before, 0, counts[l]));
    before = until;
  }
  return zeros;
}

}  // namespace convscope
