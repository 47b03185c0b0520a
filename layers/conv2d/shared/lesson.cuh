// SPDX-License-Identifier: Apache-2.0
// lesson.cuh: code that the lessons on a GPU share: the sizes of a problem for a kernel, and views
// of its tensors. (The threads of a GPU cannot be watched; the lessons on the CPU can.)
// Read next  the files *_lesson_cuda.cu of the algorithm folders
#pragma once

#include "framework/cuda/launch.cuh"
#include "framework/watch/view.h"
#include "layers/conv2d/algorithm.h"

namespace convscope::lesson {

using Index = std::int64_t;
using In = View<const float*>;
using Out = View<float*>;

struct ConvShape {
  explicit ConvShape(const Conv2dProblem& z)
      : n(z.n),
        c(z.c),
        h(z.h),
        w(z.w),
        k(z.k),
        r(z.r),
        s(z.s),
        p(z.p()),
        q(z.q()),
        groups(z.groups),
        c_group(z.c_per_group()),
        k_group(z.k_per_group()),
        stride_h(z.stride_h),
        stride_w(z.stride_w),
        pad_top(z.pad_top),
        pad_left(z.pad_left),
        dilation_h(z.dilation_h),
        dilation_w(z.dilation_w) {}

  // Returns the row and the column of x at tap (r,s) of output (p,q); they may be outside.
  constexpr Index row(Index p, Index r) const { return p * stride_h - pad_top + r * dilation_h; }
  constexpr Index column(Index q, Index s) const {
    return q * stride_w - pad_left + s * dilation_w;
  }

  // Returns the inverse of row(): p with row(p, r) = h, or -1 when the stride skips row h. Likewise
  // for q.
  constexpr Index output_row(Index h, Index r) const {
    const Index at = h + pad_top - r * dilation_h;
    return at < 0 || at % stride_h != 0 ? -1 : at / stride_h;
  }
  constexpr Index output_column(Index column, Index s) const {
    const Index at = column + pad_left - s * dilation_w;
    return at < 0 || at % stride_w != 0 ? -1 : at / stride_w;
  }

  In x(const void* data) const { return {static_cast<const float*>(data), n, c, h, w}; }
  In weights(const void* data) const { return {static_cast<const float*>(data), k, c_group, r, s}; }
  In y(const void* data) const { return {static_cast<const float*>(data), n, k, p, q}; }
  // Returns a view of the bias. Without a bias the view is empty, and b.or_zero(k) is 0.
  In bias(const void* data) const {
    return {static_cast<const float*>(data), data == nullptr ? 0 : k};
  }
  Out x(void* data) const { return {static_cast<float*>(data), n, c, h, w}; }
  Out weights(void* data) const { return {static_cast<float*>(data), k, c_group, r, s}; }
  Out y(void* data) const { return {static_cast<float*>(data), n, k, p, q}; }

  Index n, c, h, w, k, r, s, p, q, groups, c_group, k_group;
  Index stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
};

inline Conv2dSupport takes(DType dtype) {
  if (dtype == DType::f32) return {};
  return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(dtype)));
}

}  // namespace convscope::lesson
