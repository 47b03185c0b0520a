// SPDX-License-Identifier: Apache-2.0
// kernel_runs.h: the kernels' own word that they ran. `explain` and the reports say beforehand
// which kernel a step will use; this is what they are checked against.
//
// A card's function says so when it is called (card_function.h), and so does every kernel that does
// the work of several cards at once. Whoever wants to know keeps a KernelCounter:
//
//   KernelCounter counter;
//   plan->forward(x, labels);
//   counter.runs();  // {{"winograd_f4x3", "forward", "n=8,c=64,..."}, 1}, ...
//
// Cost       without a counter: one load and one branch for each call, a few nanoseconds. With
//            one:
//            a lock and an entry of a map.
// On a GPU   a call queues work, and is what is counted. A recording calls once, while it is made,
//            and is replayed many times.
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

// Counts while it lives. One at a time.
class CONVSCOPE_API KernelCounter {
 public:
  KernelCounter();
  ~KernelCounter();
  KernelCounter(const KernelCounter&) = delete;
  KernelCounter& operator=(const KernelCounter&) = delete;

  // How many calls there were since it was made or asked to forget.
  std::map<KernelRun, std::int64_t> runs() const;
  void forget();
};

// For kernel_ran() alone.
extern CONVSCOPE_API std::atomic<bool> kernels_are_counted;
CONVSCOPE_API void count_kernel(std::string_view kernel, std::string_view direction,
                                const std::string& problem);

// "I, `kernel`, compute `direction` of `problem` now."
template <class Problem>
void kernel_ran(std::string_view kernel, std::string_view direction, const Problem& problem) {
  if (kernels_are_counted.load(std::memory_order_relaxed)) {
    count_kernel(kernel, direction, problem.text());
  }
}

}  // namespace convscope
