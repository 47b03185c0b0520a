// SPDX-License-Identifier: Apache-2.0
// run_search.h: finds run folders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns all run folders at or below `path` (a run folder, runs/<name>, or runs/) by name. A
// folder with config.yaml or status.json is a run.
CONVSCOPE_API std::vector<std::string> find_runs(const std::string& path);

// Returns the newest run under runs/<name> that can continue: interrupted, killed, or stopped by a
// failure that may be gone (a full disk). `fits`, if not null, is called for each run, newest
// first. A run for which `fits` returns true has priority, even while a process works on it, so
// that no run is started twice.
CONVSCOPE_API std::optional<std::string> newest_unfinished_run(
    const std::string& folder, const std::function<bool(const std::string&)>& fits = {});

}  // namespace convscope
