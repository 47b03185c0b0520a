// SPDX-License-Identifier: Apache-2.0
// problem_text.h: parses the text of a problem whose sizes have another meaning than those of a
// convolution.
#pragma once

#include <string_view>

#include "layers/conv2d/problem.h"

namespace convscope {

// Returns Conv2dProblem::parse(text), but does not check that the sizes fit each other.
Conv2dProblem parse_unchecked(std::string_view text);

}  // namespace convscope
