// SPDX-License-Identifier: Apache-2.0
// alarms.h: reports when a network does not learn.
#pragma once

#include <cstdint>

#include "framework/export.h"

namespace convscope {

// Over kWindow steps the mean loss stayed within 1 % of ln(classes), the loss of a network that
// gives every class the same probability: the network does not learn. This is reported once.
class CONVSCOPE_API LossAlarm {
 public:
  static constexpr std::int64_t kWindow = 200;
  explicit LossAlarm(int classes);
  // Returns whether the alarm rings after a step with this loss.
  bool observe(double loss);

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
