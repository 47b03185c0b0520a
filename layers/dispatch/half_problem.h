// SPDX-License-Identifier: Apache-2.0
// half_problem.h: the problem of a heavy layer in half precision as a planned step on a GPU has it:
// images are halves with their channels last, weights and sums stay f32.
#pragma once

#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/elements.h"

namespace convscope {

template <class Problem>
Problem with_channels_last(Problem problem) {
  const DType half = problem.dtype;
  problem.types = OperandTypes{.x = half, .w = DType::f32, .accumulator = DType::f32, .y = half};
  problem.layout = ActivationLayout::channels_last;
  return problem;
}

}  // namespace convscope
