// SPDX-License-Identifier: Apache-2.0
// loss_scale_state.h: the state of loss scaling (purpose: optim/loss_scale.h) and its update after
// a step. The host calls advance(). In recorded steps, which a device runs without the host, a
// kernel calls it.
#pragma once

#include <cstdint>

namespace convscope {

struct LossScaleState {
  static constexpr double kFirst = 65536;       // 2^16
  static constexpr double kLargest = 16777216;  // 2^24
  static constexpr std::int64_t kGoodSteps = 2000;

  double scale = kFirst;
  std::int64_t good_steps = 0;  // since the scale last changed
  std::int64_t skipped = 0;     // skipped updates in total

  constexpr void advance(bool finite) {
    if (!finite) {
      scale = scale > 2 ? scale / 2 : 1.0;
      good_steps = 0;
      ++skipped;
    } else if (++good_steps >= kGoodSteps) {
      scale = 2 * scale < kLargest ? 2 * scale : kLargest;
      good_steps = 0;
    }
  }
};

// In device memory.
struct DeviceLossScale {
  LossScaleState state;
  std::int32_t overflow = 0;  // 1: a gradient of this step is not finite
};

}  // namespace convscope
