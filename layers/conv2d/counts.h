// SPDX-License-Identifier: Apache-2.0
// counts.h: counts that the costs of several convolution algorithms have in common
// (layers/dispatch/cost/cost.h).
#pragma once

#include "framework/int_math.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/cost/cost.h"

namespace convscope {

// Returns the number of pairs of an output position and a tap along one axis whose input position
// is inside the image. `in`, `out` are sizes of x and y.
inline double pairs_inside(std::int64_t in, std::int64_t out, std::int64_t taps,
                           std::int64_t stride, std::int64_t dilation, std::int64_t pad) {
  std::int64_t pairs = 0;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    // Positions first <= o < end have 0 <= o stride - pad + tap dilation < in.
    const std::int64_t shift = pad - tap * dilation;
    const std::int64_t first = shift > 0 ? ceil_div(shift, stride) : 0;
    const std::int64_t end = in + shift > 0 ? ceil_div(in + shift, stride) : 0;
    const std::int64_t inside = (end < out ? end : out) - first;
    if (inside > 0) pairs += inside;
  }
  return number(pairs);
}
// Returns the issue slots of a step of a register tile. Two ports with a latency of four cycles are
// busy only with eight accumulators; a tile with fewer waits for its own sums.
inline double slots(std::int64_t accumulators) {
  return number(accumulators < 8 ? 8 : accumulators);
}

inline double rows_inside(const Conv2dProblem& z) {
  return pairs_inside(z.h, z.p(), z.r, z.stride_h, z.dilation_h, z.pad_top);
}
inline double columns_inside(const Conv2dProblem& z) {
  return pairs_inside(z.w, z.q(), z.s, z.stride_w, z.dilation_w, z.pad_left);
}

}  // namespace convscope
