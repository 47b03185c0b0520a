// SPDX-License-Identifier: Apache-2.0
// parallel_pass.h: passes of many short parallel loops, such as the passes of an eager network.
#pragma once

#include <atomic>
#include <cstdint>

#include "framework/export.h"
#include "framework/parallel.h"

namespace convscope {

// Runs a repeated pass. Between two loops of a pass, waiting threads may fall asleep, and waking
// them takes as long as a short loop. So if the pass before woke the threads more than once, the
// next one runs in a parallel_region(), which wakes them once. A pass whose loops all stay in one
// thread wakes no thread.
class CONVSCOPE_API ParallelPass {
 public:
  // Runs body(). `size` is any measure of its work: a pass of another size is observed again.
  void run(std::int64_t size, FunctionRef<void()> body);

 private:
  std::atomic<std::int64_t> size_{-1};
  std::atomic<bool> in_region_{false};
};

}  // namespace convscope
