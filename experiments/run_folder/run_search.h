// SPDX-License-Identifier: Apache-2.0
// run_search.h: finds run folders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// All run folders at or below `path`: a run folder itself, runs/<name>, or runs/; by name. A folder
// is a run when it holds config.yaml or status.json.
CONVSCOPE_API std::vector<std::string> find_runs(const std::string& path);

// The newest run under runs/<name> that can go on: interrupted, killed, or stopped by a failure
// that may be gone by now (a full disk). `fits`, when given, is asked about each, newest first: one
// that fits comes before one that does not, and counts even while a process works on it, so that
// nobody starts the same run a second time.
CONVSCOPE_API std::optional<std::string> newest_unfinished_run(
    const std::string& folder, const std::function<bool(const std::string&)>& fits = {});

}  // namespace convscope
