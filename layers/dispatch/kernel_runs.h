// SPDX-License-Identifier: Apache-2.0
// kernel_runs.h: counts the kernels that really ran. `explain` and the reports predict which kernel
// a step will use; tests compare the prediction with these counts.
//
// An algorithm's function reports each call (algorithm_function.h). A kernel that does the work of
// several algorithms reports each of them. Create a KernelCounter to read the counts:
//
//   KernelCounter counter;
//   plan->forward(x, labels);
//   counter.runs();  // {{"winograd_f4x3", "forward", "n=8,c=64,..."}, 1}, ...
//
// Cost       without a counter: one load and one branch for each call, a few nanoseconds. With a
//            counter: a lock and an entry of a map.
// On a GPU   a call queues work, and the call is counted. A recording (CUDA graph) is counted once,
//            when it is captured; its replays are not counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "framework/export.h"

namespace convscope {

struct KernelRun {
  std::string kernel;     // "winograd_f4x3"
  std::string direction;  // "forward"
  std::string problem;    // its text

  auto operator<=>(const KernelRun&) const = default;
};

// Counts during its lifetime. Only one may exist at a time.
class CONVSCOPE_API KernelCounter {
 public:
  KernelCounter();
  ~KernelCounter();
  KernelCounter(const KernelCounter&) = delete;
  KernelCounter& operator=(const KernelCounter&) = delete;

  // Returns the number of calls since construction or forget().
  std::map<KernelRun, std::int64_t> runs() const;
  void forget();
};

// Read by kernel_ran() only.
extern CONVSCOPE_API std::atomic<bool> kernels_are_counted;
CONVSCOPE_API void count_kernel(std::string_view kernel, std::string_view direction,
                                const std::string& problem);

// Reports that `kernel` computes `direction` of `problem` now.
template <class Problem>
void kernel_ran(std::string_view kernel, std::string_view direction, const Problem& problem) {
  if (kernels_are_counted.load(std::memory_order_relaxed)) {
    count_kernel(kernel, direction, problem.text());
  }
}

}  // namespace convscope
