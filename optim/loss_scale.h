// SPDX-License-Identifier: Apache-2.0
// loss_scale.h: keeps small gradients above the smallest fp16 number in convolutions and linear
// layers that multiply in fp16.
//
// The loss is multiplied by a power of two S before the backward pass, and the parameters'
// gradients are divided by S before the update. A gradient that neither underflows nor overflows
// keeps its bits. S is adapted: when a gradient is infinite or NaN, that step's update is skipped
// and S is halved; after 2000 good steps in a row, S is doubled. A skipped step counts as a step,
// also for Adam's corrections. In recorded steps, S and the counts are on the device
// (DeviceLossScale). The kernels that compute the gradients, or DeviceUpdate::unscale(), divide and
// check; the end of the step chooses the next S.
// Source: Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740
#pragma once

#include <cstdint>
#include <vector>

#include "framework/ops/loss_scale_state.h"
#include "optim/optimizer.h"

namespace convscope {

class CONVSCOPE_API LossScale {
 public:
  using State = LossScaleState;
  static constexpr double kFirst = State::kFirst;
  static constexpr double kLargest = State::kLargest;
  static constexpr std::int64_t kGoodSteps = State::kGoodSteps;

  double scale() const { return state_.scale; }
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }
  // Divides the gradients by the scale and chooses the next scale. Returns false when a gradient
  // was not finite; the caller must then skip the update.
  bool unscale(const std::vector<OptimParameter>& parameters);

 private:
  State state_;
};

}  // namespace convscope
