// SPDX-License-Identifier: Apache-2.0
// alarms.h: checks the loss of every step and reports when training has gone wrong.
#pragma once

#include <cstdint>
#include <string>

#include "framework/export.h"

namespace convscope {

enum class Alarm { kNone, kNotFinite, kNotLearning };

// kNotFinite: the loss is NaN or infinite; the run must stop. kNotLearning: over kWindow steps the
// mean loss stayed within 1 % of ln(classes), the loss of a network that gives every class the same
// probability. kNotLearning is reported once.
class CONVSCOPE_API LossAlarm {
 public:
  static constexpr std::int64_t kWindow = 200;
  explicit LossAlarm(int classes);
  Alarm observe(double loss);

  // A checkpoint stores this state. A resumed run therefore raises the same alarms as an
  // uninterrupted run.
  struct State {
    double window_sum = 0;
    std::int64_t window_steps = 0;
    bool warned = false;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  double chance_loss_;  // ln(classes)
  State state_;
};

}  // namespace convscope
