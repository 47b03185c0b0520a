// SPDX-License-Identifier: Apache-2.0
// run_check.h: checks algorithms, each in its own process, and reports the outcome in a row,
// whatever the algorithm does to that process. A plug-in is opened only there: the verdict comes
// from a process in which none of its code has run.
//
// The check finds mistakes. What a plug-in prints, returns, or does to its own process does not
// mislead it. It is not a sandbox: code that is made to change the checker's memory can do so. To
// grade untrusted code, run the check as a user, or in a container, that can do no harm.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/check/check_row.h"

namespace convscope {

struct CheckTask {
  std::string plugin = {};     // absolute; "": an algorithm of the program
  std::string algorithm = {};  // "": the file is refused, for the reason of `refusal`
  std::string refusal = {};
};

// Returns the algorithms of a plug-in as tasks, or one task with a refusal when it does not fit.
// The plug-in is opened in another process.
CONVSCOPE_API std::vector<CheckTask> tasks_of_plugin(const std::string& file);

// Runs a check. `command` returns what reproduces a problem's text. `watch` is told the current
// step.
CONVSCOPE_API CheckRow run_check(const CheckTask& task, const CheckSettings& settings,
                                 const CheckLists& lists,
                                 const std::function<std::string(const std::string&)>& command,
                                 const std::function<void(const std::string&)>& watch = {});

}  // namespace convscope
