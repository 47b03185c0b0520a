// SPDX-License-Identifier: Apache-2.0
// stillborn.h: folders of runs that were killed before the first step: they contain no training and
// cannot be resumed.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

// Returns whether the folder has no status, no checkpoint, and no files except those of a new run.
CONVSCOPE_API bool is_stillborn(const std::string& run);

// Removes such folders in `parent` (runs/<name>) if no process works on them, that is, if their
// lock is free and nothing has changed for a minute.
CONVSCOPE_API void remove_stillborn_runs(const std::string& parent);

}  // namespace convscope
