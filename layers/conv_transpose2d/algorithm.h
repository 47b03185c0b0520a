// SPDX-License-Identifier: Apache-2.0
// algorithm.h: the algorithms of the transposed convolution, which are those of conv2d: its
// backward_data computes forward, its forward computes dx, and its backward_weight computes dw with
// x and dy exchanged. An algorithm that registers itself for conv2d is in this table, too, unless
// it takes only integers or only block-sparse weights.
#pragma once

#include "layers/conv2d/algorithm.h"
#include "layers/conv_transpose2d/problem.h"
#include "layers/dispatch/operands.h"

namespace convscope {

template <>
struct Operator<ConvTranspose2dProblem> {
  using ForwardArgs = Conv2dBackwardDataArgs;
  using BackwardDataArgs = Conv2dForwardArgs;
  using BackwardWeightArgs = Conv2dBackwardWeightArgs;
  static constexpr const char* kOperation = "conv_transpose2d";
  CONVSCOPE_API static Registry<Algorithm<ConvTranspose2dProblem>>& algorithms(DeviceType device);
  CONVSCOPE_API static void run(const Call<ConvTranspose2dProblem>& call);
  static CostKey cost_key(const char* algorithm, Direction direction) {
    return {"conv2d", algorithm, exchanged(direction)};
  }
  // Returns the size to which errors are relative: over_tiles() of the convolution.
  CONVSCOPE_API static Operands magnitudes(const ConvTranspose2dProblem& problem,
                                           Direction direction, const Operands& operands);
};

}  // namespace convscope
