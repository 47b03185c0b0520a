// SPDX-License-Identifier: Apache-2.0
// direct_shape.h: the sizes of a problem as the kernels of direct convolution on a GPU take them,
// and the limits within which int counts them.
#pragma once

#include <climits>
#include <cstdint>

#include "framework/int_math.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/algorithm.h"

namespace convscope {

// The sizes of a problem, for the kernels. Each size fits an int, but products of sizes may not.
struct DirectShape {
  int n = 0, c = 1, h = 1, w = 1, k = 1, r = 1, s = 1, p = 1, q = 1;
  int stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0, dilation_h = 1, dilation_w = 1;
  int c_group = 1, k_group = 1;  // channels of one group

  DirectShape() = default;
  explicit DirectShape(const Conv2dProblem& z)
      : n(static_cast<int>(z.n)),
        c(static_cast<int>(z.c)),
        h(static_cast<int>(z.h)),
        w(static_cast<int>(z.w)),
        k(static_cast<int>(z.k)),
        r(static_cast<int>(z.r)),
        s(static_cast<int>(z.s)),
        p(static_cast<int>(z.p())),
        q(static_cast<int>(z.q())),
        stride_h(static_cast<int>(z.stride_h)),
        stride_w(static_cast<int>(z.stride_w)),
        pad_top(static_cast<int>(z.pad_top)),
        pad_left(static_cast<int>(z.pad_left)),
        dilation_h(static_cast<int>(z.dilation_h)),
        dilation_w(static_cast<int>(z.dilation_w)),
        c_group(static_cast<int>(z.c_per_group())),
        k_group(static_cast<int>(z.k_per_group())) {}
};

// Tells whether the register tiles of `direct` support the problem: square kernels of 3, 5 or 7,
// stride 1 or 2, no dilation, no groups.
inline bool has_register_tiles(const Conv2dProblem& z) {
  return z.r == z.s && (z.r == 3 || z.r == 5 || z.r == 7) && z.stride_h == z.stride_w &&
         (z.stride_h == 1 || z.stride_h == 2) && z.dilation_h == 1 && z.dilation_w == 1 &&
         z.groups == 1;
}

// Refuses types other than f32, and sizes that int does not count.
inline Support direct_support(const Conv2dProblem& z) {
  if (z.dtype != DType::f32) {
    return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  constexpr std::int64_t kMax = INT_MAX / 64;  // tiles are counted in int
  if (z.n > kMax || z.k * z.c_per_group() * z.r * z.s > kMax || z.c > kMax || z.k > kMax ||
      z.h * z.w > kMax || z.p() * z.q() > kMax ||
      z.n * ceil_div(static_cast<int>(z.p() * z.q()), 8) > kMax) {
    return Support::no(
        "expects fewer than 2^25 images, channels, weights, pixels of one image and tiles of 8 "
        "pixels");
  }
  return {};
}

}  // namespace convscope
