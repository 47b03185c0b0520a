// SPDX-License-Identifier: Apache-2.0
// compare_runs.h: runs beside runs: their configs, their environments, and what came out.
#pragma once

#include <string>
#include <vector>

#include "experiments/compare/comparison.h"
#include "experiments/compare/run_sides.h"

namespace convscope {

// Two sides or more; each is set against the first. Every metric that both have: Welch's test where
// both have two runs or more.
CONVSCOPE_API CompareResult compare_runs(const std::vector<RunSide>& sides);

}  // namespace convscope
