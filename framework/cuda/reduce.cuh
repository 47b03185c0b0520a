// SPDX-License-Identifier: Apache-2.0
// reduce.cuh: sums over axes, for the operations that need one (sum, gradients of biases).
#pragma once

#include "framework/tensor.h"

namespace convscope {

// y = sum of x over the axes whose bit is set in `mask`, or y += with `accumulate`. y has as many
// elements as the axes that stay; f32 (summed in double) or f64. Two runs give the same bits.
void sum_on_cuda(const Tensor& x, unsigned mask, const Tensor& y, bool accumulate);

}  // namespace convscope
