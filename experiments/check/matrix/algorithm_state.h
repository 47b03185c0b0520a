// SPDX-License-Identifier: Apache-2.0
// algorithm_state.h: checks that the result of a call depends only on its arguments.
//
// The result must not depend on earlier calls: not on their number or their problems, and not on
// the values that the same addresses held before. When a call has returned, its work must be done.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"

namespace convscope::matrix {

// Returns "", or a sentence that says what a result depends on: "y of a call with the same numbers
// ...". Runs small problems with one thread, and compares the bits of several calls. The expected
// result is not known here, so an algorithm whose results are always wrong in the same way passes.
// An algorithm that is not deterministic is not checked.
CONVSCOPE_API std::string fault_of_state(const Conv2dAlgorithm& algorithm, Direction direction);

}  // namespace convscope::matrix
