// SPDX-License-Identifier: Apache-2.0
// seen_pixels.h: the part of x that a convolution reads, for the costs of cards whose copies bring
// pixels one by one. No CUDA here: tests check it on the CPU.
// Read next  layers/conv2d/problem.h
#pragma once

#include <algorithm>

#include "layers/conv2d/problem.h"

namespace convscope {

// A stride steps over pixels that a smaller kernel never sees.
inline double seen_part_of_x(const Conv2dProblem& z) {
  const auto of_line = [](std::int64_t taps, std::int64_t stride) {
    return std::min(1.0, static_cast<double>(taps) / static_cast<double>(stride));
  };
  return of_line(z.r, z.stride_h) * of_line(z.s, z.stride_w);
}

}  // namespace convscope
