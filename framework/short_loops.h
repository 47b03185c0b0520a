// SPDX-License-Identifier: Apache-2.0
// short_loops.h: makes parallel loops with little work run in the calling thread only.
//
// Waking a thread and waiting for it takes 1 us when the thread spins and 10 us or more when it
// sleeps. A loop does not know the duration of its chunks, but its caller often does:
//
//   const ShortLoops here(problem.nominal_flops());
//   ...                       // parallel loops with few operations stay in this thread
//
// Chunks and their order do not change, so results are bit-identical.
#pragma once

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API ShortLoops {
 public:
  // Takes the approximate number of floating-point operations of all loops in the scope together.
  explicit ShortLoops(double flops);
  ~ShortLoops();
  ShortLoops(const ShortLoops&) = delete;
  ShortLoops& operator=(const ShortLoops&) = delete;

 private:
  const bool before_;
};

// A loop with at least this number of operations uses several threads. Inside parallel_region(),
// where the threads are already awake, a tenth of this number is enough. Tests that compare thread
// counts on small problems set the limit to 0.
inline constexpr double kFlopsWorthThreads = 5e5;
CONVSCOPE_API void set_flops_worth_threads(double flops);

}  // namespace convscope
