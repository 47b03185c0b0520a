// SPDX-License-Identifier: Apache-2.0
// look_markup.h: the HTML of a page that replays a lesson: controls, facts, empty elements for the
// arrays and the source, and instructions.
#pragma once

#include <string>

#include "experiments/look/look_page.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

// Returns the markup; `data` is the script from look_data().
std::string look_markup(const Look& look, const Conv2dAlgorithm& algorithm,
                        const std::string& data);

// The script that replays the lesson (look_script.cpp).
extern const char* const kLookScript;

}  // namespace convscope
