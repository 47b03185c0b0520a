// SPDX-License-Identifier: Apache-2.0
// check_algorithm.h: runs the whole test matrix on one algorithm of conv2d, as the tests do for all
// built-in algorithms: small problems, the files of experiments/shapes, random problems, long sums,
// and many threads. It stops at the first fault and states the likely cause.
#pragma once

#include <string>
#include <vector>

#include "experiments/check/check_row.h"

namespace convscope {

// The problem lists of a folder. The edge cases come first, because they are small and each has a
// different special property. Lists of other operators are skipped. Throws an error of kind kIo
// when a list cannot be read.
struct CheckLists {
  std::vector<Conv2dProblem> edge_cases = {}, others = {};
};
CONVSCOPE_API CheckLists check_lists(const std::string& folder);

// Returns the check of conv2d for its description.
CONVSCOPE_API OperatorCheck conv2d_check();

}  // namespace convscope
