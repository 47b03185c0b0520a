// SPDX-License-Identifier: Apache-2.0
// half_problem.h: the problem of an operator in a compiled step in half precision on a GPU: images
// are fp16/bf16 in NHWC, weights and accumulators stay f32.
#pragma once

#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/elements.h"

namespace convscope {

template <class Problem>
Problem with_nhwc(Problem problem) {
  const DType half = problem.dtype;
  problem.types = OperandTypes{.x = half, .w = DType::f32, .accumulator = DType::f32, .y = half};
  problem.layout = ActivationLayout::nhwc;
  return problem;
}

}  // namespace convscope
