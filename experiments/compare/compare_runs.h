// SPDX-License-Identifier: Apache-2.0
// compare_runs.h: compares runs: their configs, their environments, and their results.
#pragma once

#include <string>
#include <vector>

#include "experiments/compare/comparison.h"
#include "experiments/compare/run_sides.h"

namespace convscope {

// Compares the first side with each other side, in every metric that both have. If both have two
// runs or more, Welch's test is used.
CONVSCOPE_API CompareResult compare_runs(const std::vector<RunSide>& sides);

}  // namespace convscope
