// SPDX-License-Identifier: Apache-2.0
// algorithm_state.h: does an algorithm compute each call from its arguments only?
//
// A result must not depend on earlier calls: on their number, on their problems, or on numbers that
// were stored at the same addresses. And when a call has returned, its work is done.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"

namespace convscope::matrix {

// Returns "" or what a result depends on, as a sentence: "y of a call with the same numbers ...".
// Runs small problems with one thread. It compares bits of calls with each other, so an algorithm
// that is always wrong passes; nothing is checked for one that is not deterministic.
CONVSCOPE_API std::string fault_of_state(const Conv2dAlgorithm& algorithm, Direction direction);

}  // namespace convscope::matrix
