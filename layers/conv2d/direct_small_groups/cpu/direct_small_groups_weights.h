// SPDX-License-Identifier: Apache-2.0
// direct_small_groups_weights.h: backward_weight of direct_small_groups and its workspace.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::direct_small_groups {

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction);
void backward_weight(const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::direct_small_groups
