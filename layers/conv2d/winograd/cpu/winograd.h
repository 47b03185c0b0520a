// SPDX-License-Identifier: Apache-2.0
// winograd.h: Winograd's convolution F(m x m, 3 x 3) for tile sizes m = 2, 4 and 6; the cards
// of winograd_f2x3_cpu.cpp, winograd_f4x3_cpu.cpp and winograd_f6x3_cpu.cpp call it.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::winograd {

Conv2dSupport supports(const Conv2dProblem& problem, Direction direction);
Conv2dCost cost(int m, const Conv2dProblem& problem, Direction direction);
std::size_t workspace_bytes(int m, const Conv2dProblem& problem, Direction direction);
std::size_t prepared_bytes(int m, const Conv2dProblem& problem, Direction direction);
void prepare_weights(int m, const Conv2dPrepareArgs& args);
void forward(int m, const Conv2dForwardArgs& args);
void backward_data(int m, const Conv2dBackwardDataArgs& args);
void backward_weight(int m, const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::winograd
