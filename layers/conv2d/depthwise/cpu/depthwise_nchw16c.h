// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c.h: depthwise convolution of NCHW16c images
// (layers/dispatch/activation_layout.h), which depthwise_cpu.cpp calls for `layout=nchw16c`
// problems.
//
// A pixel is a vector of 16 channels, and a tap is a vector of the 16 weights of these channels.
// Every load is a whole pixel, so a plane of 7 columns fills vectors as well as one of 112.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::depthwise_nchw16c_pass {

// Tells whether the problem is supported: f32, with one kernel for each channel.
Conv2dSupport supports(const Conv2dProblem& problem);
Conv2dCost cost(const Conv2dProblem& problem, Direction direction);
std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction);
// Returns the bytes of w prepared as [K/16,R,S,16] for forward and backward_data, with zeros after
// the last channel.
std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction);
void prepare_weights(const Conv2dPrepareArgs& args);
void forward(const Conv2dForwardArgs& args);
void backward_data(const Conv2dBackwardDataArgs& args);
void backward_weight(const Conv2dBackwardWeightArgs& args);

// Tells whether the inner loops for this problem are unrolled over its taps.
bool unrolled(const Conv2dProblem& problem, Direction direction);

}  // namespace convscope::depthwise_nchw16c_pass
