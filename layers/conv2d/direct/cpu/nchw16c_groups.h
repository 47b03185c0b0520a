// SPDX-License-Identifier: Apache-2.0
// nchw16c_groups.h: convolution of NCHW16c images (layers/dispatch/activation_layout.h) whose
// groups are smaller than a block of 16 channels: 2, 4 or 8 input channels and as many output
// channels, as in ResNeXt. The algorithm `direct` calls these functions for such problems.
//
// A block of 16 channels contains whole groups, so 16 channels of y depend on only the same 16
// channels of x. No reduction crosses a block, and within a block lanes of different groups never
// mix.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::nchw16c_groups {

// Tells whether the images are NCHW16c and the groups are smaller than a block.
bool is_small(const Conv2dProblem& problem);
// Tells whether such a problem is supported: f32 with 2, 4 or 8 channels in a group and as many
// kernels.
Conv2dSupport supports(const Conv2dProblem& problem);
Conv2dCost cost(const Conv2dProblem& problem, Direction direction);
std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction);
std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction);
void prepare_weights(const Conv2dPrepareArgs& args);
void forward(const Conv2dForwardArgs& args);
void backward_data(const Conv2dBackwardDataArgs& args);
void backward_weight(const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::nchw16c_groups
