// SPDX-License-Identifier: Apache-2.0
// quantizer_cpu.cpp: keeps a step size near its last value and within its range. The loops are
// plain, because there are few step sizes.
#include <algorithm>
#include <cmath>

#include "quant/quantizer.h"

namespace convscope {
namespace {

// NaN stays NaN, because std::max and std::min return their first argument if it is NaN. So the
// loss becomes NaN and shows the error.
float bounded(float x, float low, float high) { return std::min(std::max(x, low), high); }

}  // namespace

void put_into_bounds(const Tensor& step, const StepBounds& bounds, StepForm form) {
  if (!bounds.last.defined()) return;
  float* const s = step.data<float>();
  float* const before = bounds.last.data<float>();
  const float* const s0 = bounds.first.data<float>();
  constexpr auto kFloor = static_cast<float>(Quantizer::kFloor);
  constexpr auto kCeiling = static_cast<float>(Quantizer::kCeiling);
  for (std::int64_t i = 0; i < step.numel(); ++i) {
    if (form == StepForm::log) {
      const float change = std::log(static_cast<float>(Quantizer::kMaxChange));
      s[i] = bounded(s[i], before[i] - change, before[i] + change);
      s[i] = bounded(s[i], std::log(s0[i] / kFloor), std::log(s0[i] * kCeiling));
    } else {
      s[i] = bounded(s[i], s0[i] / kFloor, s0[i] * kCeiling);
    }
    before[i] = s[i];
  }
}

}  // namespace convscope
