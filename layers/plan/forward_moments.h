// SPDX-License-Identifier: Apache-2.0
// forward_moments.h: a forward convolution that also writes the mean and spread of each channel of
// y. The batch norm after it then reads y once instead of twice. For algorithms that can compute
// them from their accumulators. A compiled training step uses it where only a batch norm reads y
// (conv2d_plan.cpp).
//
// Few algorithms have it, so it is registered separately, in the last lines of the algorithm's
// file:
//
//   const ForwardMoments kMoments{.parts = ..., .run = ...};
//   CONVSCOPE_CONV2D_FORWARD_MOMENTS(kAlgorithm, kMoments)
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope {

struct ForwardMoments {
  // Returns the number of sets of pixels, each with its moments; 0: not for this problem, which the
  // algorithm itself supports.
  std::int64_t (*parts)(const Conv2dProblem&) = nullptr;
  // The algorithm's forward without residual and ReLU. It also assigns moments f32
  // [parts][4][stored channels of y] (framework/cuda/channel_moments.cuh), those of y as stored,
  // rounded. In tf32 x is given as fp16 operands (half_factors.h).
  void (*run)(const Conv2dForwardArgs& args, float* moments) = nullptr;
};

CONVSCOPE_API bool register_forward_moments(const Conv2dAlgorithm& algorithm,
                                            const ForwardMoments& moments, const char* file);

// Returns null if the algorithm has none for this problem.
CONVSCOPE_API const ForwardMoments* forward_moments_of(const Conv2dAlgorithm& algorithm,
                                                       const Conv2dProblem& problem);

// Runs it and counts the algorithm's forward (layers/dispatch/kernel_runs.h).
CONVSCOPE_API void run_forward_moments(const Conv2dAlgorithm& algorithm,
                                       const ForwardMoments& moments, const Conv2dForwardArgs& args,
                                       float* to);

}  // namespace convscope

#define CONVSCOPE_CONV2D_FORWARD_MOMENTS(algorithm, moments)               \
  namespace {                                                              \
  const bool registered_conv2d_forward_moments =                           \
      ::convscope::register_forward_moments(algorithm, moments, __FILE__); \
  }
