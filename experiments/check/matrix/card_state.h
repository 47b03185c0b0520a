// SPDX-License-Identifier: Apache-2.0
// card_state.h: does a card compute each call from its arguments alone?
//
// What it gives must not depend on the calls before: on their number, on their problems, or on
// numbers that stood at the same addresses. And when a call has returned, its work is done.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"

namespace convscope::matrix {

// "" or what a result depends on, as a sentence: "y of a call with the same numbers ...". Asked on
// small problems, with one thread. Bits are compared with bits of other calls, so a card that is
// wrong in each call alike passes; nothing is asked of one that is not deterministic.
CONVSCOPE_API std::string fault_of_state(const Conv2dAlgorithm& card, Direction direction);

}  // namespace convscope::matrix
