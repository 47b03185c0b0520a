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
  bool graph = false;                    // show all layers and what they read
};

// Returns the named layers, or all layers. For an unknown name, throws an error of kind kInvalid
// that suggests the nearest one.
CONVSCOPE_API std::vector<const ExplainedLayer*> asked_layers(
    const Explanation& explanation, const std::vector<std::string>& names);

CONVSCOPE_API std::string answer_text(const Explanation& explanation,
                                      const ExplainQuestion& question);

// Returns a text with every algorithm of one problem, in each direction: which algorithm runs, and
// why the others do not. Throws an error for an invalid policy, but not when an algorithm refuses.
CONVSCOPE_API std::string problem_text(const std::shared_ptr<const OperatorUse>& use,
                                       Device device);

}  // namespace convscope
