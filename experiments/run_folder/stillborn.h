// SPDX-License-Identifier: Apache-2.0
// stillborn.h: folders of runs that were killed before the first step: nothing was trained in them,
// and nothing can go on there.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

// Neither a status nor a checkpoint, and no file but those that a run begins with.
CONVSCOPE_API bool is_stillborn(const std::string& run);

// Removes such folders among the runs in `parent` (runs/<name>) that nobody works on: their lock is
// free, and nothing has changed there for a minute.
CONVSCOPE_API void remove_stillborn_runs(const std::string& parent);

}  // namespace convscope
