// SPDX-License-Identifier: Apache-2.0
// alarms.cpp: checks the loss of every step and reports when training has gone wrong.
#include "experiments/trainer/alarms.h"

#include <cmath>

namespace convscope {

LossAlarm::LossAlarm(int classes) : chance_loss_(std::log(static_cast<double>(classes))) {}

Alarm LossAlarm::observe(double loss) {
  if (!std::isfinite(loss)) return Alarm::kNotFinite;
  state_.window_sum += loss;
  if (++state_.window_steps < kWindow) return Alarm::kNone;
  const double mean = state_.window_sum / static_cast<double>(kWindow);
  state_.window_sum = 0;
  state_.window_steps = 0;
  if (state_.warned || std::abs(mean - chance_loss_) > 0.01 * chance_loss_) return Alarm::kNone;
  state_.warned = true;
  return Alarm::kNotLearning;
}

}  // namespace convscope
