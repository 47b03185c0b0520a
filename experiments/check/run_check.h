// SPDX-License-Identifier: Apache-2.0
// run_check.h: checks algorithms, each in a process of its own, and says what came of it in a row,
// whatever the algorithm does to that process. A plug-in is opened there alone: the verdict is
// told by a process in which nothing of it has run.
//
// It finds mistakes, and it is not fooled by what a plug-in prints, returns, or does to its own
// process. It is no prison: code that sets out to change the checker's memory can. Whoever grades
// strangers runs it as a user, or in a container, that can do no harm.
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

// The algorithms of a plug-in as tasks; one with a refusal when it does not fit. It is opened in
// another process.
CONVSCOPE_API std::vector<CheckTask> tasks_of_plugin(const std::string& file);

// `command`: of a problem's text, what shows it again. `watch` is told what the process is doing.
CONVSCOPE_API CheckRow run_check(const CheckTask& task, const CheckSettings& settings,
                                 const CheckLists& lists,
                                 const std::function<std::string(const std::string&)>& command,
                                 const std::function<void(const std::string&)>& watch = {});

}  // namespace convscope
