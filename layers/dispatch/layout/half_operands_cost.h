// SPDX-License-Identifier: Apache-2.0
// half_operands_cost.h: counts of the passes that make fp16 operands of an f32 image.
// Read next  half_operands.h
#pragma once

#include "layers/dispatch/cost/cost.h"

namespace convscope {

// Two kernels: one reads f32 and finds the largest magnitude, one reads f32 again and writes fp16.
inline constexpr double kHalfOperandsBytes = 2 * sizeof(float) + 2;  // for each stored element
inline constexpr double kHalfOperandsLaunches = 2;

// Adds the passes over `elements` of one image, or of two that the same kernels treat.
inline void add_half_operands(Cost& cost, double elements) {
  cost.pass_bytes += kHalfOperandsBytes * elements;
  cost.launches += kHalfOperandsLaunches;
}

}  // namespace convscope
