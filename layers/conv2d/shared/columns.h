// SPDX-License-Identifier: Apache-2.0
// columns.h: columns of inputs, the parts that depend on the instruction set: they copy image rows
// into column panels, sum columns back into the image, and multiply along pixels.
//
// A kernel row is one (c, r) of a group. It produces S rows of columns, one for each s. A pixel is
// one output position, counted through n, p, q.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/problem.h"

namespace convscope {

// The geometry of one group, plain numbers only.
struct ColumnMap {
  std::int64_t channel_step = 0;  // H W
  std::int64_t sample_step = 0;   // C H W
  std::int64_t h = 0, w = 0, r = 0, s = 0, p = 0, q = 0;
  std::int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;

  // Makes the map. A 1x1 kernel that reads every pixel once treats the image as one long row.
  explicit ColumnMap(const Conv2dProblem& z)
      : channel_step(z.h * z.w),
        sample_step(z.c * z.h * z.w),
        h(z.h),
        w(z.w),
        r(z.r),
        s(z.s),
        p(z.p()),
        q(z.q()),
        stride_h(z.stride_h),
        stride_w(z.stride_w),
        dilation_h(z.dilation_h),
        dilation_w(z.dilation_w),
        pad_top(z.pad_top),
        pad_left(z.pad_left) {
    if (r == 1 && s == 1 && stride_h == 1 && stride_w == 1 && p == h && q == w && pad_top == 0 &&
        pad_left == 0) {
      w = h * w;
      q = w;
      h = p = 1;
    }
  }
};

struct ColumnKernels {
  // Packs columns of kernel rows [row_begin, row_end) for pixels [pixel, pixel + count):
  //   to[((row - row_begin) S + s) to_step + j] = x[n, c, p stride_h - pad_top + r dilation_h, ...]
  // x: the group's first channel of sample 0.
  void (*pack)(const ColumnMap& map, const float* x, std::int64_t pixel, std::int64_t count,
               std::int64_t row_begin, std::int64_t row_end, float* to,
               std::int64_t to_step) = nullptr;
  // Unpacks one sample, the transpose of pack: each element of image[channels,H,W] is the sum of
  // the elements of columns [channels R S, P Q] that were read from it. Rows of columns are
  // `from_step` elements apart.
  void (*unpack)(const ColumnMap& map, const float* columns, std::int64_t from_step,
                 std::int64_t channels, float* image) = nullptr;
  // Computes sums[i * sums_step + j] += sum over t < count of left[i * left_step + t] right[j *
  // right_step + t], for i < left_rows, j < right_rows.
  void (*dot)(const float* left, std::int64_t left_step, std::int64_t left_rows, const float* right,
              std::int64_t right_step, std::int64_t right_rows, std::int64_t count, float* sums,
              std::int64_t sums_step) = nullptr;
};

CONVSCOPE_API extern IsaTable<ColumnKernels> column_kernels;

}  // namespace convscope
