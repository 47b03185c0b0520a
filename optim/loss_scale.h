// SPDX-License-Identifier: Apache-2.0
// loss_scale.h: keeps small gradients above the smallest binary16 number while they pass through
// convolutions and linear layers that multiply in f16.
//
// The loss is multiplied by a power of two S before the backward pass and the gradients of the
// parameters are divided by it before the update, which changes no bit of a gradient that neither
// under- nor overflows. S is found by trying: when a gradient is infinite or NaN, that step's
// update is left out and S is halved; after 2000 good steps in a row S is doubled. A step that is
// left out counts all the same, for Adam's corrections too.
// In recorded steps S and the counts lie on the device (DeviceLossScale): whoever makes the
// gradients, or DeviceUpdate::unscale(), divides and looks; what stands behind the step chooses the
// next S.
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
  // Divides the gradients by the scale and chooses the next one. False: a gradient was not finite,
  // the update must be left out.
  bool unscale(const std::vector<OptimParameter>& parameters);

 private:
  State state_;
};

}  // namespace convscope
