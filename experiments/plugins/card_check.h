// SPDX-License-Identifier: Apache-2.0
// card_check.h: what is not believed of a card that came out of a plug-in: that it is complete, and
// that its answers can be asked for.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/ladder.h"

namespace convscope {

// "" or what is wrong, as the end of a sentence: "has no name". `others`: names of cards that stand
// beside it.
CONVSCOPE_API std::string problem_of_card(const Conv2dAlgorithm& card,
                                          const std::vector<std::string>& others);
CONVSCOPE_API std::string problem_of_ladder(const Conv2dLadder& ladder,
                                            const std::vector<std::string>& cards);
// Whether `name` may be that of an algorithm: "" or what was expected of it.
CONVSCOPE_API std::string problem_of_name(const std::string& name);

// Asks supports(), cost(), workspace_bytes() and prepared_bytes() about small problems. They run
// here: whoever fears a crash does it in a child.
CONVSCOPE_API std::string problem_of_answers(const Conv2dAlgorithm& card);

}  // namespace convscope
