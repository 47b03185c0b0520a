// SPDX-License-Identifier: Apache-2.0
// wrong_positions.h: describes the positions of the wrong elements of a result.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"

namespace convscope {

// Returns "12 of 60 elements, all with q = 5 (the last)". `wrong[i]` says whether element i is
// wrong.
CONVSCOPE_API std::string positions_text(const Conv2dProblem& problem, Direction direction,
                                         const std::vector<bool>& wrong);

}  // namespace convscope
