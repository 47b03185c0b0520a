// SPDX-License-Identifier: Apache-2.0
// depthwise_backward.h: both gradients of a depthwise convolution in one pass over x and dy, for
// planned steps: dx and dw need the same numbers, so dy is read once instead of twice.
//
//   const DepthwiseBackward& fused = depthwise_backward_kernel.get(device)();
//   if (fused.supports(problem)) fused.run({problem, x, w, dy, dx, dw, accumulate, workspace});
#pragma once

#include <cstddef>

#include "framework/kernel_slot.h"
#include "layers/conv2d/problem.h"

namespace convscope {

struct DepthwiseBackwardArgs {
  const Conv2dProblem& problem;
  const void* x;   // [N,C,H,W]
  const void* w;   // [C,1,R,S]
  const void* dy;  // [N,C,P,Q]
  void* dx;        // [N,C,H,W], assigned
  void* dw;        // [C,1,R,S], added to when `accumulate`, assigned otherwise
  bool accumulate;
  void* workspace;
};

struct DepthwiseBackward {
  bool (*supports)(const Conv2dProblem& problem) = nullptr;
  std::size_t (*workspace_bytes)(const Conv2dProblem& problem) = nullptr;
  void (*run)(const DepthwiseBackwardArgs& args) = nullptr;
};

// Filled for CUDA.
extern CONVSCOPE_API KernelSlot<const DepthwiseBackward&()> depthwise_backward_kernel;

}  // namespace convscope
