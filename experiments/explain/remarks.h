// SPDX-License-Identifier: Apache-2.0
// remarks.h: what the policies of a config came to, in sentences: refusals, lists of which not the
// first word was taken, comparisons. Layers that say the same stand in one sentence.
#pragma once

#include <string>

#include "experiments/explain/explanation.h"

namespace convscope {

// Lines for the table's foot; "" when there is nothing to say.
CONVSCOPE_API std::string remarks_text(const Explanation& explanation);

// An error of kind kUnavailable when an algorithm that a training step needs refuses its problem:
// which layers, why, and what to write.
CONVSCOPE_API void fail_if_refused(const Explanation& explanation);

}  // namespace convscope
