// SPDX-License-Identifier: Apache-2.0
// loss_scale.h: keeps small gradients above the smallest binary16 number while they pass through
// convolutions and linear layers that multiply in f16.
//
// The loss is multiplied by a power of two S before the backward pass and the gradients of the
// parameters are divided by it before the update, which changes no bit of a gradient that neither
// under- nor overflows. S is found by trying: when a gradient is infinite or NaN, that step's
// update is left out and S is halved; after 2000 good steps in a row S is doubled. A step that is
// left out counts all the same, for Adam's corrections too.
// In recorded steps S and the counts lie on the device (DeviceLossScale): DeviceUpdate::unscale()
// divides and looks, the kernel behind the step chooses the next S.
// Source: Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740
#pragma once

#include <cstdint>
#include <vector>

#include "optim/optimizer.h"

namespace convscope {

class CONVSCOPE_API LossScale {
 public:
  static constexpr double kFirst = 65536;       // 2^16
  static constexpr double kLargest = 16777216;  // 2^24
  static constexpr std::int64_t kGoodSteps = 2000;

  struct State {
    double scale = kFirst;
    std::int64_t good_steps = 0;  // since the scale last changed
    std::int64_t skipped = 0;     // updates left out, in all
  };

  double scale() const { return state_.scale; }
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }
  // Chooses the next scale. Kernels call it, too.
  static constexpr void advance(State& s, bool finite) {
    if (!finite) {
      s.scale = s.scale > 2 ? s.scale / 2 : 1.0;
      s.good_steps = 0;
      ++s.skipped;
    } else if (++s.good_steps >= kGoodSteps) {
      s.scale = 2 * s.scale < kLargest ? 2 * s.scale : kLargest;
      s.good_steps = 0;
    }
  }
  // Divides the gradients by the scale and chooses the next one. False: a gradient was not finite,
  // the update must be left out.
  bool unscale(const std::vector<OptimParameter>& parameters);

 private:
  State state_;
};

// In device memory.
struct DeviceLossScale {
  LossScale::State state;
  std::int32_t overflow = 0;  // a gradient of this step is not finite
};

}  // namespace convscope
