// SPDX-License-Identifier: Apache-2.0
// project_state.h: the git state of the user's folder, for env.json. The state says from which
// commit of the user's repository a run was started.
#pragma once

#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

struct ProjectState {
  std::string path;    // top folder of the repository
  std::string branch;  // "main"; "(detached)"
  std::string commit;  // forty hexadecimal digits; "(initial)" before the first commit
  bool dirty = false;  // a tracked file has changed since
};

// Returns the state of the repository that contains `folder`. Returns none outside of a repository,
// without the program git, or when git does not answer within two seconds. Git is called with
// options that prevent writes and hooks.
CONVSCOPE_API std::optional<ProjectState> project_state(const std::string& folder);

}  // namespace convscope
