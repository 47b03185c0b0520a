// SPDX-License-Identifier: Apache-2.0
// fft_depthwise.h: depthwise convolution by FFT on the GPU; called by fft_cuda.cu.
#pragma once

#include <cstddef>

#include "layers/conv2d/algorithm.h"

namespace convscope::fft {

// Tells whether each group has one channel and one kernel.
bool is_depthwise(const Conv2dProblem& problem);

Conv2dCost depthwise_cost(const Conv2dProblem& problem, Direction direction);
std::size_t depthwise_workspace_bytes(const Conv2dProblem& problem, Direction direction);
// Returns the bytes of the spectra of all kernels.
std::size_t depthwise_prepared_bytes(const Conv2dProblem& problem, Direction direction);
void depthwise_prepare(const Conv2dPrepareArgs& args);
void depthwise_forward(const Conv2dForwardArgs& args);
void depthwise_backward_data(const Conv2dBackwardDataArgs& args);
void depthwise_backward_weight(const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::fft
