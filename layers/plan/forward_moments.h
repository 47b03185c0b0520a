// SPDX-License-Identifier: Apache-2.0
// forward_moments.h: the forward of a convolution that leaves the mean and the spread of each
// channel of y beside y, for the batch norm behind it, which then reads y once and not twice. For
// cards that can take them of their sums while these lie in registers. A planned training step asks
// for it where a batch norm alone reads y (conv2d_plan.cpp).
//
// It stands beside the card, and not on it, because few cards have one: in the last lines of the
// card's file
//
//   const ForwardMoments kMoments{.parts = ..., .run = ...};
//   CONVSCOPE_CONV2D_FORWARD_MOMENTS(kCard, kMoments)
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope {

struct ForwardMoments {
  // How many sets of pixels they are taken of; 0: not for this problem, of those that the card
  // takes.
  std::int64_t (*parts)(const Conv2dProblem&) = nullptr;
  // What the card's forward does, without residual and ReLU; and assigns moments f32
  // [parts][4][channels of y as they are stored], as framework/cuda/channel_moments.cuh says. They
  // are those of y as it is stored, rounded. Of tf32 x is given as half factors (half_factors.h).
  void (*run)(const Conv2dForwardArgs& args, float* moments) = nullptr;
};

CONVSCOPE_API bool register_forward_moments(const Conv2dAlgorithm& card,
                                            const ForwardMoments& moments, const char* file);

// Null: the card has none for this problem.
CONVSCOPE_API const ForwardMoments* forward_moments_of(const Conv2dAlgorithm& card,
                                                       const Conv2dProblem& problem);

// Runs it; the card's forward is counted (layers/dispatch/kernel_runs.h).
CONVSCOPE_API void run_forward_moments(const Conv2dAlgorithm& card, const ForwardMoments& moments,
                                       const Conv2dForwardArgs& args, float* to);

}  // namespace convscope

#define CONVSCOPE_CONV2D_FORWARD_MOMENTS(card, moments)               \
  namespace {                                                         \
  const bool registered_conv2d_forward_moments =                      \
      ::convscope::register_forward_moments(card, moments, __FILE__); \
  }
