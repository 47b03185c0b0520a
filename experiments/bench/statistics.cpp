// SPDX-License-Identifier: Apache-2.0
// statistics.cpp: the summary of many timings of one thing.
#include "experiments/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace convscope {

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - static_cast<double>(below);
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

namespace {

std::vector<double> block_medians_ms(const std::vector<double>& seconds) {
  constexpr std::size_t kMaxBlocks = 32;
  const std::size_t blocks = std::min(seconds.size(), kMaxBlocks);
  std::vector<double> out;
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto at = [&](std::size_t block) {
      return seconds.begin() + static_cast<std::ptrdiff_t>(block * seconds.size() / blocks);
    };
    std::vector<double> block(at(i), at(i + 1));
    std::ranges::sort(block);
    out.push_back(1e3 * quantile(block, 0.5));
  }
  return out;
}

}  // namespace

TimingSummary summary_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::vector<double> blocks = block_medians_ms(seconds);
  std::ranges::sort(seconds);
  return {.samples = static_cast<int>(seconds.size()),
          .median_ms = 1e3 * quantile(seconds, 0.5),
          .p10_ms = 1e3 * quantile(seconds, 0.1),
          .p90_ms = 1e3 * quantile(seconds, 0.9),
          .min_ms = 1e3 * seconds.front(),
          .block_medians_ms = std::move(blocks)};
}

double middle_value(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double geometric_mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

}  // namespace convscope
