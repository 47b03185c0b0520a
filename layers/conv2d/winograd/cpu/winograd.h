// SPDX-License-Identifier: Apache-2.0
// winograd.h: Winograd's convolution F(m x m, 3 x 3) for tile sizes m = 2, 4 and 6; called by the
// algorithms of winograd_f2x3_cpu.cpp, winograd_f4x3_cpu.cpp and winograd_f6x3_cpu.cpp.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::winograd {

Conv2dSupport supports(const Conv2dProblem& problem, Direction direction);
Conv2dCost cost(int m, const Conv2dProblem& problem, Direction direction);
std::size_t workspace_bytes(int m, const Conv2dProblem& problem, Direction direction);
std::size_t prepared_bytes(int m, const Conv2dProblem& problem, Direction direction);
void prepare_weights(int m, const Conv2dPrepareArgs& args);
bool prepares_for_one_call(int m, const Conv2dProblem& problem, Direction direction);
void forward(int m, const Conv2dForwardArgs& args);
void backward_data(int m, const Conv2dBackwardDataArgs& args);
void backward_weight(int m, const Conv2dBackwardWeightArgs& args);

// Calls the function above with m = M; the signature is the one that Conv2dAlgorithm expects.
template <int M>
Conv2dCost cost(const Conv2dProblem& problem, Direction direction) {
  return cost(M, problem, direction);
}
template <int M>
std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  return workspace_bytes(M, problem, direction);
}
template <int M>
std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction) {
  return prepared_bytes(M, problem, direction);
}
template <int M>
bool prepares_for_one_call(const Conv2dProblem& problem, Direction direction) {
  return prepares_for_one_call(M, problem, direction);
}
template <int M>
void prepare_weights(const Conv2dPrepareArgs& args) {
  prepare_weights(M, args);
}
template <int M>
void forward(const Conv2dForwardArgs& args) {
  forward(M, args);
}
template <int M>
void backward_data(const Conv2dBackwardDataArgs& args) {
  backward_data(M, args);
}
template <int M>
void backward_weight(const Conv2dBackwardWeightArgs& args) {
  backward_weight(M, args);
}

}  // namespace convscope::winograd
