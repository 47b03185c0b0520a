// SPDX-License-Identifier: Apache-2.0
// direct_nchw16c_weights.h: backward_weight of direct_nchw16c, and the workspace of all directions.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::direct_nchw16c {

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction);
void backward_weight(const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::direct_nchw16c
