// SPDX-License-Identifier: Apache-2.0
// overview.h: writes the short answer of `convscope explain`: one line per convolution, and how the
// training and inference steps are executed.
#pragma once

#include <string>

#include "experiments/explain/explanation.h"

namespace convscope {

// Returns "64x32x32 -> 128 3x3 s2 p1" for a convolution; other problems unchanged.
CONVSCOPE_API std::string short_problem(const std::string& problem);

// Shortens the name of a kernel for a table cell. A chain of this layer only becomes "lanes_chain".
// A longer chain becomes "lanes_chain: c1+c2", or "lanes_chain: c1..c9" if the names are too long.
// "direct checked by reference" becomes "direct (checked)".
CONVSCOPE_API std::string short_kernel(const std::string& kernel, const std::string& layer);

CONVSCOPE_API std::string overview_text(const Explanation& explanation);

// Says for training and inference whether the step is compiled; with `operations`, also lists the
// operations of each step.
CONVSCOPE_API std::string steps_text(const Explanation& explanation, bool operations);

}  // namespace convscope
