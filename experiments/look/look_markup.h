// SPDX-License-Identifier: Apache-2.0
// look_markup.h: the frame of a page that plays a lesson: controls, facts, places for arrays and
// source, and the words that say how to read them.
#pragma once

#include <string>

#include "experiments/look/look_page.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

// `data` is the script that look_data() makes.
std::string look_markup(const Look& look, const Conv2dAlgorithm& card, const std::string& data);

// What plays it (look_script.cpp).
extern const char* const kLookScript;

}  // namespace convscope
