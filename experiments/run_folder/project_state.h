// SPDX-License-Identifier: Apache-2.0
// project_state.h: the state of the git repository that the user works in, for env.json: which of
// the user's own commits a run belongs to.
#pragma once

#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

struct ProjectState {
  std::string path;    // of the repository's top folder
  std::string branch;  // "main"; "(detached)"
  std::string commit;  // forty hexadecimal digits; "(initial)" before the first commit
  bool dirty = false;  // a file that git tracks was changed since
};

// Of the repository that holds `folder`; none outside of one, without the program git, and when git
// does not answer within two seconds. Asks git to change nothing and to run no hook.
CONVSCOPE_API std::optional<ProjectState> project_state(const std::string& folder);

}  // namespace convscope
