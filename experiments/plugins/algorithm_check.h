// SPDX-License-Identifier: Apache-2.0
// algorithm_check.h: checks an algorithm that comes from a plug-in: that it is complete, and that
// it answers questions.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/ladder.h"

namespace convscope {

// Returns "" or what is wrong, as the end of a sentence: "has no name". `others`: names of the
// other algorithms.
CONVSCOPE_API std::string problem_of_algorithm(const Conv2dAlgorithm& algorithm,
                                               const std::vector<std::string>& others);
CONVSCOPE_API std::string problem_of_ladder(const Conv2dLadder& ladder,
                                            const std::vector<std::string>& algorithms);
// Returns "" if `name` may be the name of an algorithm, else what was expected.
CONVSCOPE_API std::string problem_of_name(const std::string& name);

// Asks supports(), cost(), workspace_bytes() and prepared_bytes() about small problems, in this
// process: to survive a crash, call it in a child.
CONVSCOPE_API std::string problem_of_answers(const Conv2dAlgorithm& algorithm);

}  // namespace convscope
