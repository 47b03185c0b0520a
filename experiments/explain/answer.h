// SPDX-License-Identifier: Apache-2.0
// answer.h: the text of `convscope explain`, for the command line and for Python; also for one
// problem without a network.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experiments/explain/explanation.h"

namespace convscope {

struct ExplainQuestion {
  std::vector<std::string> layers = {};  // show every algorithm of these layers
  bool all = false;                      // show every algorithm of every layer, and the operations
  bool steps = false;                    // show the operations of the steps
};

// Returns the named layers, or all; an error of kind kInvalid names the nearest.
CONVSCOPE_API std::vector<const ExplainedLayer*> asked_layers(
    const Explanation& explanation, const std::vector<std::string>& names);

CONVSCOPE_API std::string answer_text(const Explanation& explanation,
                                      const ExplainQuestion& question);

// Returns a text with every algorithm of one problem, in each direction: which one runs, and why
// the other algorithms do not. Throws an error for an invalid policy, not for a refusal.
CONVSCOPE_API std::string problem_text(const std::shared_ptr<const OperatorUse>& use,
                                       Device device);

}  // namespace convscope
