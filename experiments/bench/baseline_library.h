// SPDX-License-Identifier: Apache-2.0
// baseline_library.h: finds and opens the plug-in of another library (baseline.h).
#pragma once

#include <string>

#include "experiments/bench/baseline.h"
#include "framework/export.h"

namespace convscope {

// Opens libconvscope_baseline_<name>.so next to libconvscope.so, or in the folder
// CONVSCOPE_BASELINE_DIR. Throws an error of kind kUnavailable that says what to install, when the
// plug-in is missing or its table is wrong. A plug-in stays open until the process ends.
CONVSCOPE_API const ConvscopeBaseline& open_baseline(const std::string& name);

// Returns a sentence when the library is older than the version that comparisons should use, and ""
// otherwise.
CONVSCOPE_API std::string age_remark(const ConvscopeBaseline& baseline);

}  // namespace convscope
