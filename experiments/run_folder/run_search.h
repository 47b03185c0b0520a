// SPDX-License-Identifier: Apache-2.0
// run_search.h: finds run folders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns all run folders at or below `path` (a run folder, runs/<name>, or runs/), sorted by name.
// A folder with config.yaml or status.json is a run.
CONVSCOPE_API std::vector<std::string> find_runs(const std::string& path);

// Returns the newest run under runs/<name> that can continue: interrupted, killed, or stopped by a
// failure whose cause may be gone (a full disk). If `fits` is set, it is called for each run,
// newest first, and the first run for which it returns true is preferred. Such a run is returned
// even while a process works on it, so that the caller does not start the same run twice.
CONVSCOPE_API std::optional<std::string> newest_unfinished_run(
    const std::string& folder, const std::function<bool(const std::string&)>& fits = {});

}  // namespace convscope
