// SPDX-License-Identifier: Apache-2.0
// algorithm_check.h: checks that the algorithm of a plug-in is complete, and that its functions
// return valid values for small problems.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/ladder.h"

namespace convscope {

// Returns "" if the algorithm is complete. Otherwise returns what is wrong as the end of a
// sentence, such as "has no name". `others` are the names of the other algorithms.
CONVSCOPE_API std::string problem_of_algorithm(const Conv2dAlgorithm& algorithm,
                                               const std::vector<std::string>& others);
CONVSCOPE_API std::string problem_of_ladder(const Conv2dLadder& ladder,
                                            const std::vector<std::string>& algorithms);
// Returns "" if `name` may be the name of an algorithm, else what was expected.
CONVSCOPE_API std::string problem_of_name(const std::string& name);

// Calls supports(), cost(), workspace_bytes() and prepared_bytes() for small problems. Returns ""
// or what is wrong. A crash ends this process, so call it in a child process.
CONVSCOPE_API std::string problem_of_answers(const Conv2dAlgorithm& algorithm);

}  // namespace convscope
