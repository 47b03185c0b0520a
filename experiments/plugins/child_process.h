// SPDX-License-Identifier: Apache-2.0
// child_process.h: runs code that nobody vouches for in a process of its own, so that a crash ends
// that process and becomes a sentence here.
//
// The child is a copy of this process with one thread. So it must be made before the first parallel
// loop: afterwards libgomp waits in the child for threads that are not there.
#pragma once

#include <functional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Says what the child is about to do; a child that is silent for too long is ended.
using ChildNote = std::function<void(const std::string& doing)>;

struct ChildEnd {
  bool finished = false;  // the work returned `code`, or threw, and then `said` is the exception
  int code = 0;
  std::string said;
  std::string doing;  // the last note
  bool took_too_long = false;
  std::string cause;  // of one that did not finish: "ends the process by signal 11 (...)"
};
// What work() writes to stdout and stderr is written. `seconds`: the longest time between notes.
CONVSCOPE_API ChildEnd run_in_child(const std::function<int(const ChildNote&)>& work,
                                    unsigned seconds);

}  // namespace convscope
