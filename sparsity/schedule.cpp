// SPDX-License-Identifier: Apache-2.0
// schedule.cpp: the share of pruned weights after a number of training steps.
#include "sparsity/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace convscope {

SparsitySchedule::SparsitySchedule(const SparsityOptions& options, std::int64_t total_steps)
    : options_(options) {
  CONVSCOPE_CHECK(total_steps >= 0, "sparsity", "expected a number of steps, got ", total_steps);
  const auto total = static_cast<double>(total_steps);
  start_ = std::llround(options.start * total);
  end_ = std::max(start_, static_cast<std::int64_t>(std::llround(options.end * total)));
  const bool once =
      options.method != PruneMethod::rigl && options.schedule == PruneSchedule::one_shot;
  last_update_ = once ? start_ : end_;
}

double SparsitySchedule::sparsity(std::int64_t steps) const {
  if (steps < start_) return 0;
  if (steps >= last_update_ || options_.method == PruneMethod::rigl) return options_.target;
  // Between two updates the sparsity of the earlier update applies.
  const std::int64_t since = steps - start_;
  const auto length = static_cast<double>(end_ - start_);
  if (options_.schedule == PruneSchedule::iterative) {
    const auto round = static_cast<double>(1 + since * (options_.rounds - 1) / (end_ - start_));
    return 1 - std::pow(1 - options_.target, round / static_cast<double>(options_.rounds));
  }
  const auto at = static_cast<double>(since - since % options_.every_steps);
  return options_.target * (1 - std::pow(1 - at / length, 3));
}

bool SparsitySchedule::update_due(std::int64_t steps) const {
  if (steps < start_ || steps > last_update_) return false;
  if (steps == start_ || steps == last_update_) return true;
  const std::int64_t since = steps - start_;
  if (options_.schedule == PruneSchedule::iterative && options_.method != PruneMethod::rigl) {
    const std::int64_t length = end_ - start_;
    const std::int64_t gaps = options_.rounds - 1;
    return since * gaps / length != (since - 1) * gaps / length;
  }
  return since % options_.every_steps == 0;
}

double SparsitySchedule::replaced(std::int64_t steps) const {
  if (steps <= start_ || steps >= end_) return 0;
  const double t = static_cast<double>(steps) / static_cast<double>(end_);
  return options_.drop_fraction / 2 * (1 + std::cos(std::numbers::pi * t));
}

}  // namespace convscope
