// SPDX-License-Identifier: Apache-2.0
// row_sums.h: sums over the rows of [n,C], for each channel: the gradient of a bias.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/int_math.h"
#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Assigns sums[c] = sum over rows of x[i,c]; x f32 or f64, sums f64 [C]. Without rows the sums are
// 0.
CONVSCOPE_API void row_sums(const Tensor& x, const Tensor& sums);

extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& sums)> row_sums_kernel;

// Rows are cut into ranges (pieces). Each piece is summed separately, and the results are added in
// order. The cuts depend only on the number of rows, so the bits are the same with any number of
// threads.
struct RowPieces {
  std::int64_t rows, size, count;
  explicit RowPieces(std::int64_t n)
      : rows(n), size(std::max<std::int64_t>(256, ceil_div(n, 512))), count(ceil_div(n, size)) {}
};

}  // namespace convscope
