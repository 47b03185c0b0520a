// SPDX-License-Identifier: Apache-2.0
// remarks.h: sentences about the outcome of a config's policies: refusals, lists of algorithms
// whose first algorithm was not used, and checks against another algorithm. Layers with the same
// outcome share a sentence.
#pragma once

#include <string>

#include "experiments/explain/explanation.h"

namespace convscope {

// Returns lines below the table; "" when there is nothing to report.
CONVSCOPE_API std::string remarks_text(const Explanation& explanation);

// Throws an error of kind kUnavailable when an algorithm that a training step needs refuses its
// problem. The message names the layers, the reason, and config values that would work.
CONVSCOPE_API void fail_if_refused(const Explanation& explanation);

}  // namespace convscope
