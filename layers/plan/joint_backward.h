// SPDX-License-Identifier: Apache-2.0
// joint_backward.h: computes both gradients of a convolution in one pass over dy, for algorithms
// with such a kernel. dx and dw read the same dy; in memory-bound layers a second read takes a
// quarter of the backward pass. A compiled step uses such a kernel where both gradients are needed
// and the same algorithm is chosen for both (conv2d_op.cpp).
//
// Few algorithms have such a kernel, so it is registered separately, in the last lines of the
// algorithm's file:
//
//   const JointBackward kBoth{.fits = ..., .cost = ..., .workspace_bytes = ..., .run = ...};
//   CONVSCOPE_CONV2D_JOINT_BACKWARD(kAlgorithm, kBoth)
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope {

struct JointBackward {
  bool (*fits)(const Conv2dProblem&) = nullptr;  // for problems that the algorithm supports
  Conv2dCost (*cost)(const Conv2dProblem&) = nullptr;
  std::size_t (*workspace_bytes)(const Conv2dProblem&) = nullptr;
  // Computes the algorithm's backward_data and backward_weight together. Both arguments have the
  // same problem and dy. The prepared weights are in `data`, the workspace is in `weight`.
  void (*run)(const Conv2dBackwardDataArgs& data, const Conv2dBackwardWeightArgs& weight) = nullptr;
};

CONVSCOPE_API bool register_joint_backward(const Conv2dAlgorithm& algorithm,
                                           const JointBackward& both, const char* file);

// Returns null if the algorithm has no such kernel for this problem.
CONVSCOPE_API const JointBackward* joint_backward_of(const Conv2dAlgorithm& algorithm,
                                                     const Conv2dProblem& problem);
// Returns joint_backward_of(), but null where two separate kernels are estimated to be faster.
CONVSCOPE_API const JointBackward* faster_joint_backward_of(const Conv2dAlgorithm& algorithm,
                                                            const Conv2dProblem& problem);

// Calls run() and counts both directions of the algorithm (layers/dispatch/kernel_runs.h).
CONVSCOPE_API void run_joint_backward(const Conv2dAlgorithm& algorithm, const JointBackward& both,
                                      const Conv2dBackwardDataArgs& data,
                                      const Conv2dBackwardWeightArgs& weight);

}  // namespace convscope

#define CONVSCOPE_CONV2D_JOINT_BACKWARD(algorithm, both)               \
  namespace {                                                          \
  const bool registered_conv2d_joint_backward =                        \
      ::convscope::register_joint_backward(algorithm, both, __FILE__); \
  }
