// SPDX-License-Identifier: Apache-2.0
// rigl.cpp: RigL, which trains a sparse network from the first training step. The number of kept
// weights of each layer is constant, but updates change which weights are kept.
#include "sparsity/rigl.h"

#include <algorithm>
#include <cmath>

#include "framework/random.h"
#include "sparsity/criteria.h"

namespace convscope {
namespace {

constexpr std::uint64_t kFirstStream = std::uint64_t{1} << 40;  // far from the layers' streams

}  // namespace

std::vector<float> random_strengths(std::int64_t count, std::uint64_t seed, std::uint64_t layer) {
  Generator random(seed, kFirstStream + layer);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& value : out) value = random.uniform();
  return out;
}

std::vector<std::int64_t> drop_and_grow(const Tensor& keep, const Tensor& w, const Tensor& gradient,
                                        std::int64_t count) {
  float* const kept = keep.data<float>();
  float* const weight = w.data<float>();
  const float* const dw = gradient.data<float>();
  std::vector<std::int64_t> in, candidates;
  std::vector<float> in_strength;
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    if (kept[i] != 0) {
      in.push_back(i);
      in_strength.push_back(std::fabs(weight[i]));
    } else {
      candidates.push_back(i);
    }
  }
  count = std::min(
      {count, static_cast<std::int64_t>(in.size()), static_cast<std::int64_t>(candidates.size())});
  const std::vector<std::uint8_t> stays = drop_weakest(in_strength, count);
  std::vector<std::uint8_t> just_dropped(static_cast<std::size_t>(w.numel()), 0);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (stays[i] != 0) continue;
    kept[in[i]] = 0;
    just_dropped[static_cast<std::size_t>(in[i])] = 1;
    candidates.push_back(in[i]);
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<float> wanted;  // the weakest by -|dw| have the largest gradients
  for (const std::int64_t i : candidates) wanted.push_back(-std::fabs(dw[i]));
  const std::vector<std::uint8_t> not_grown = drop_weakest(wanted, count);
  std::vector<std::int64_t> grown;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (not_grown[i] != 0) continue;
    const std::int64_t at = candidates[i];
    kept[at] = 1;
    if (just_dropped[static_cast<std::size_t>(at)] != 0) continue;
    weight[at] = 0;
    grown.push_back(at);
  }
  return grown;
}

}  // namespace convscope
