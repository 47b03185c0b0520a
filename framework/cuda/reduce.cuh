// SPDX-License-Identifier: Apache-2.0
// reduce.cuh: sums over axes, for operations such as sum() and the gradients of biases.
#pragma once

#include "framework/tensor.h"

namespace convscope {

// Sums x over the axes whose bit is set in `mask`. Overwrites y, or adds to y with `accumulate`. y
// has one element per index of the remaining axes. x and y are f32, which is summed in double, or
// f64. Two runs give the same bits.
void sum_on_cuda(const Tensor& x, unsigned mask, const Tensor& y, bool accumulate);

}  // namespace convscope
