// SPDX-License-Identifier: Apache-2.0
// joint_backward.h: both gradients of a convolution from one walk over dy, for cards that have a
// kernel for it. dx and dw read the same dy; where memory sets the pace, reading it once is a
// quarter of the backward pass. A planned step asks for it where both gradients are wanted and the
// card is chosen for both (conv2d_plan.cpp).
//
// It stands beside the card, and not on it, because few cards have one: in the last lines of the
// card's file
//
//   const JointBackward kBoth{.fits = ..., .cost = ..., .workspace_bytes = ..., .run = ...};
//   CONVSCOPE_CONV2D_JOINT_BACKWARD(kCard, kBoth)
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope {

struct JointBackward {
  bool (*fits)(const Conv2dProblem&) = nullptr;  // of problems that the card takes
  Conv2dCost (*cost)(const Conv2dProblem&) = nullptr;
  std::size_t (*workspace_bytes)(const Conv2dProblem&) = nullptr;
  // What the card's backward_data and backward_weight do together, with the weights prepared as for
  // backward_data. Both arguments have the same problem and dy; the workspace is that of `weight`.
  void (*run)(const Conv2dBackwardDataArgs& data, const Conv2dBackwardWeightArgs& weight) = nullptr;
};

CONVSCOPE_API bool register_joint_backward(const Conv2dAlgorithm& card, const JointBackward& both,
                                           const char* file);

// Null: the card has none for this problem.
CONVSCOPE_API const JointBackward* joint_backward_of(const Conv2dAlgorithm& card,
                                                     const Conv2dProblem& problem);
// The same, and null where the two kernels apart are estimated to be faster.
CONVSCOPE_API const JointBackward* faster_joint_backward_of(const Conv2dAlgorithm& card,
                                                            const Conv2dProblem& problem);

// Runs it; both directions of the card are counted (layers/dispatch/kernel_runs.h).
CONVSCOPE_API void run_joint_backward(const Conv2dAlgorithm& card, const JointBackward& both,
                                      const Conv2dBackwardDataArgs& data,
                                      const Conv2dBackwardWeightArgs& weight);

}  // namespace convscope

#define CONVSCOPE_CONV2D_JOINT_BACKWARD(card, both)               \
  namespace {                                                     \
  const bool registered_conv2d_joint_backward =                   \
      ::convscope::register_joint_backward(card, both, __FILE__); \
  }
