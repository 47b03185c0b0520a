// SPDX-License-Identifier: Apache-2.0
// seen_pixels.h: the part of x that a convolution reads, for the costs of algorithms that copy
// pixels one by one. It needs no CUDA, so tests check it on the CPU.
// Read next  layers/conv2d/problem.h
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "layers/conv2d/problem.h"

namespace convscope {

// Returns the share of x that a convolution reads. With a stride, a small kernel never reads some
// pixels, and neither does a kernel whose dilation has a common divisor with the stride. The edges
// of an image are ignored.
inline double seen_part_of_x(const Conv2dProblem& z) {
  const auto line_share = [](std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
    const std::int64_t places = stride / std::gcd(stride, dilation);  // residues that taps can have
    return static_cast<double>(std::min(taps, places)) / static_cast<double>(stride);
  };
  return line_share(z.r, z.stride_h, z.dilation_h) * line_share(z.s, z.stride_w, z.dilation_w);
}

}  // namespace convscope
