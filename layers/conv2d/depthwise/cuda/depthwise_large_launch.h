// SPDX-License-Identifier: Apache-2.0
// depthwise_large_launch.h: returns the tilings of depthwise_large_*.cu for the current device.
#pragma once

#include "layers/conv2d/depthwise/cuda/depthwise_large_plan.h"
#include "layers/conv2d/problem.h"

namespace convscope::depthwise {

// Minimum number of taps for the large kernels. Kernels of 3x3, 5x5 and 7x7 use them only when
// their tiles do not fit into shared memory.
inline constexpr std::int64_t kLeastLargeTaps = 20;

LargeSizes large_sizes(const Conv2dProblem& problem, Direction direction);

// Returns the tiling; the reference is valid until this thread has requested 64 other problems,
// or cost_state() changes.
const LargePlan& large_plan(const Conv2dProblem& problem, Direction direction);

// Returns the counts of the whole call, for depthwise_large_*.cu and depthwise_split_*.cu.
Cost large_cost(const Conv2dProblem& problem, Direction direction);
Cost split_cost(const Conv2dProblem& problem, Direction direction);
Cost split_weight_cost(const Conv2dProblem& problem);

}  // namespace convscope::depthwise
