// SPDX-License-Identifier: Apache-2.0
// child_process.h: runs code that nobody vouches for in a process of its own, so that whatever it
// does ends that process and becomes a sentence here.
//
// The child is a copy of this process with one thread. So it must be made before the first parallel
// loop: afterwards libgomp waits in the child for threads that are not there. It reads nothing from
// stdin, leads a process group of its own, and ends with this process; whatever it has started is
// ended after it. This process keeps the clocks: a child cannot put them off.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Says what the child is about to do; a child that is silent for too long is ended.
using ChildNote = std::function<void(const std::string& doing)>;

struct ChildLimits {
  double note_seconds = 10;       // the longest time between notes
  double total_seconds = 0;       // of all of it; 0: no limit
  std::int64_t output = 1 << 20;  // bytes on stdout and stderr together
};

struct ChildEnd {
  enum class Kind {
    finished,   // the work returned `code`
    threw,      // `said` is the exception
    exited,     // by exit() or the like, with status `code`, before the work returned
    signalled,  // by signal `code`
    silent,     // too long without a note
    late,       // total_seconds are over
    loud,       // it wrote too much
  };
  Kind kind = Kind::exited;
  int code = 0;
  std::string said;
  std::string doing;   // the last note
  std::string result;  // what the work handed over
  std::string cause;   // of one that did not finish: "ends the process by signal 11 (...)"
  std::string output;  // the first 4 KiB of what it wrote to stdout and stderr
  std::int64_t output_bytes = 0;
  bool left_processes = false;  // some that it had started still ran; they were ended

  bool finished() const { return kind == Kind::finished; }
};

struct ChildWork {
  ChildNote note;
  std::function<void(const std::string&)> hand_over;  // at most 256 KiB; the last one counts
};
// `watch`: called now and then in this process, with the last note.
CONVSCOPE_API ChildEnd run_in_child(const std::function<int(const ChildWork&)>& work,
                                    const ChildLimits& limits,
                                    const std::function<void(const std::string&)>& watch = {});

}  // namespace convscope
