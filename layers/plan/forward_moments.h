// SPDX-License-Identifier: Apache-2.0
// forward_moments.h: forward kernels of convolutions that also write the mean and spread of each
// channel of y, computed from their accumulators. The following batch norm then reads y once
// instead of twice. A compiled training step uses such a kernel where only a batch norm reads y
// (conv2d_op.cpp).
//
// Few algorithms have such a kernel, so it is registered separately, in the last lines of the
// algorithm's file:
//
//   const ForwardMoments kMoments{.parts = ..., .run = ...};
//   CONVSCOPE_CONV2D_FORWARD_MOMENTS(kAlgorithm, kMoments)
#pragma once

#include "framework/graph/emitter.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

struct ForwardMoments {
  // Returns into how many sets the pixels are divided; run() writes the moments of each set.
  // Returns 0 if run() does not support this problem, which the algorithm itself supports.
  std::int64_t (*parts)(const Conv2dProblem&) = nullptr;
  // Runs the algorithm's forward without residual and ReLU. Also assigns `moments`, f32
  // [parts][4][stored channels of y] (framework/cuda/channel_moments.cuh). They are the moments of
  // y after rounding to its stored type. In tf32 x is given as fp16 operands (half_operands.h).
  void (*run)(const Conv2dForwardArgs& args, float* moments) = nullptr;
};

CONVSCOPE_API bool register_forward_moments(const Conv2dAlgorithm& algorithm,
                                            const ForwardMoments& moments, const char* file);

// Returns null if the algorithm has no such kernel for this problem.
CONVSCOPE_API const ForwardMoments* forward_moments_of(const Conv2dAlgorithm& algorithm,
                                                       const Conv2dProblem& problem);

// Returns the moments of a value of a graph. The next call of the producer writes moments_target(),
// for `parts` sets of pixels. moments_of() is undefined if the producer computes none.
CONVSCOPE_API Tensor moments_target(Emitter& emitter, ValueId value, std::int64_t parts);
CONVSCOPE_API Tensor moments_of(Emitter& emitter, ValueId value);

// Calls run() and counts a forward of the algorithm (layers/dispatch/kernel_runs.h).
CONVSCOPE_API void run_forward_moments(const Conv2dAlgorithm& algorithm,
                                       const ForwardMoments& moments, const Conv2dForwardArgs& args,
                                       float* to);

}  // namespace convscope

#define CONVSCOPE_CONV2D_FORWARD_MOMENTS(algorithm, moments)               \
  namespace {                                                              \
  const bool registered_conv2d_forward_moments =                           \
      ::convscope::register_forward_moments(algorithm, moments, __FILE__); \
  }
