// SPDX-License-Identifier: Apache-2.0
// child_process.h: runs untrusted code in a child process. A crash ends only the child, and becomes
// a sentence in this process.
//
// The child is a copy of this process with one thread (fork). Call run_in_child() before the first
// parallel loop: otherwise libgomp would wait in the child for threads that do not exist there. The
// child has an empty stdin, leads its own process group, and ends when this process ends. When the
// child has ended, processes that it has started are ended, too. This process measures the time
// limits, so the child cannot extend them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Reports what the child is about to do. A child that makes no report for too long is ended.
using ChildNote = std::function<void(const std::string& doing)>;

struct ChildLimits {
  double note_seconds = 10;       // the longest time between notes
  double total_seconds = 0;       // the longest time of the whole work; 0: no limit
  std::int64_t output = 1 << 20;  // bytes on stdout and stderr together
};

struct ChildEnd {
  enum class Kind {
    finished,   // the work returned `code`
    threw,      // the work threw an exception, whose text is in `said`
    exited,     // the work called exit() or the like with status `code`
    signalled,  // ended by signal `code`
    silent,     // too long without a note
    late,       // exceeded total_seconds
    loud,       // wrote too much
  };
  Kind kind = Kind::exited;
  int code = 0;
  std::string said;
  std::string doing;   // the last note
  std::string result;  // what the work passed to hand_over
  std::string cause;   // why it did not finish: "ends the process by signal 11 (...)"
  std::string output;  // its first 4 KiB on stdout and stderr
  std::int64_t output_bytes = 0;
  bool left_processes = false;  // processes that it had started still ran and were ended

  bool finished() const { return kind == Kind::finished; }
};

struct ChildWork {
  ChildNote note;
  std::function<void(const std::string&)> hand_over;  // at most 256 KiB; the last one counts
};
// Runs `work` in a child process. While it runs, this process regularly calls `watch` with the
// child's last report (ChildNote).
CONVSCOPE_API ChildEnd run_in_child(const std::function<int(const ChildWork&)>& work,
                                    const ChildLimits& limits,
                                    const std::function<void(const std::string&)>& watch = {});

}  // namespace convscope
