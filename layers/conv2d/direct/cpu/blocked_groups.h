// SPDX-License-Identifier: Apache-2.0
// blocked_groups.h: convolution of images in the blocked layout
// (layers/dispatch/activation_layout.h) whose groups are smaller than a block: 2, 4 or 8 channels
// in and as many out, as in ResNeXt. The card `direct` calls these for such problems.
//
// A block of 16 channels holds whole groups, so 16 channels of y depend on the same 16 channels of
// x: no sum crosses a block, and within a block no lane meets a lane of another group.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::blocked_groups {

// Whether a problem is of this kind: blocked images, in groups that are smaller than a block.
bool is_small(const Conv2dProblem& problem);
// Of such a problem: f32; 2, 4 or 8 channels in a group, and as many kernels.
Conv2dSupport supports(const Conv2dProblem& problem);
Conv2dCost cost(const Conv2dProblem& problem, Direction direction);
std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction);
std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction);
void prepare_weights(const Conv2dPrepareArgs& args);
void forward(const Conv2dForwardArgs& args);
void backward_data(const Conv2dBackwardDataArgs& args);
void backward_weight(const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::blocked_groups
