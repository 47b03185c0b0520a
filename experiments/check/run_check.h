// SPDX-License-Identifier: Apache-2.0
// run_check.h: checks algorithms, each in a child process, and reports the outcome in a row, even
// if the algorithm ends the child process. A plug-in is opened only in the child process, so none
// of its code runs in the process that writes the report.
//
// The check works whatever a plug-in prints, returns, or does to its process. But the child process
// is not a sandbox: malicious code can change the memory of the check. To grade untrusted code, run
// the check in a container, or as a user who has no other rights.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/check/check_row.h"

namespace convscope {

struct CheckTask {
  std::string plugin = {};     // absolute; "": an algorithm of the program
  std::string algorithm = {};  // "": the file is refused, and `refusal` is the reason
  std::string refusal = {};
};

// Opens a plug-in in another process. Returns one task for each of its algorithms, or a single task
// with a refusal when the file is not a plug-in of this program.
CONVSCOPE_API std::vector<CheckTask> tasks_of_plugin(const std::string& file);

// Runs a check of one algorithm. `command(problem)` returns the command line that repeats the check
// on the problem with this text. `watch` is called with a description of the current step.
CONVSCOPE_API CheckRow run_check(const CheckTask& task, const CheckSettings& settings,
                                 const AlgorithmChecker& checker,
                                 const std::function<std::string(const std::string&)>& command,
                                 const std::function<void(const std::string&)>& watch = {});

}  // namespace convscope
