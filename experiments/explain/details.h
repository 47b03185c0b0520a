// SPDX-License-Identifier: Apache-2.0
// details.h: writes the long answer of `convscope explain`: every algorithm of a convolution, in
// each direction. Also writes all facts of an explanation as JSON.
#pragma once

#include <string>
#include <vector>

#include "experiments/explain/explanation.h"

namespace convscope {

// Returns the meaning of the marks of layer_text().
CONVSCOPE_API std::string marks_text();
CONVSCOPE_API std::string layer_text(const ExplainedLayer& layer);

// Returns JSON with the facts about the layers in `layers`, and about the compiled training and
// inference steps.
CONVSCOPE_API std::string explanation_json(const Explanation& explanation,
                                           const std::vector<const ExplainedLayer*>& layers);

}  // namespace convscope
