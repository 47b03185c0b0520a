// SPDX-License-Identifier: Apache-2.0
// algorithm_state.h: checks that the result of a call depends only on its arguments.
//
// The result must not depend on earlier calls: not on their number, nor on their problems, nor on
// numbers that were stored at the same addresses. When a call has returned, its work must be done.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"

namespace convscope::matrix {

// Returns "" or a sentence that says what a result depends on: "y of a call with the same numbers
// ...". Runs small problems with one thread, and compares the bits of several calls. An algorithm
// whose results are always wrong in the same way passes. Checks nothing for an algorithm that is
// not deterministic.
CONVSCOPE_API std::string fault_of_state(const Conv2dAlgorithm& algorithm, Direction direction);

}  // namespace convscope::matrix
