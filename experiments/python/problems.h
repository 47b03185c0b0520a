// SPDX-License-Identifier: Apache-2.0
// problems.h: problems as Python names them: by a text, or by arrays and their sizes.
#pragma once

#include <memory>
#include <string>

#include "experiments/python/arrays.h"
#include "layers/dispatch/heavy_use.h"

namespace convscope::python {

// The question "which algorithm", of a problem's text ("n=8,c=64,...") and an algorithm's word.
std::shared_ptr<const HeavyUse> use_of(const std::string& operation, const std::string& problem,
                                       const std::string& algorithm);

}  // namespace convscope::python
