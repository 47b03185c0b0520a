// SPDX-License-Identifier: Apache-2.0
// seen_pixels.h: the part of x that a convolution reads, for the costs of cards whose copies bring
// pixels one by one. No CUDA here: tests check it on the CPU.
// Read next  layers/conv2d/problem.h
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "layers/conv2d/problem.h"

namespace convscope {

// A stride steps over pixels that a smaller kernel never sees, and so does a dilation that has a
// factor in common with it. The edges of an image do not count.
inline double seen_part_of_x(const Conv2dProblem& z) {
  const auto of_line = [](std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
    const std::int64_t places = stride / std::gcd(stride, dilation);  // that taps can stand on
    return static_cast<double>(std::min(taps, places)) / static_cast<double>(stride);
  };
  return of_line(z.r, z.stride_h, z.dilation_h) * of_line(z.s, z.stride_w, z.dilation_w);
}

}  // namespace convscope
