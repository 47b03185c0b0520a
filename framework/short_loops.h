// SPDX-License-Identifier: Apache-2.0
// short_loops.h: work that is too short to wake other threads for.
//
// To wake a thread and to wait for it takes a microsecond when it spins and ten and more when it
// sleeps. A loop does not know how long its chunks take; who calls it often does:
//
//   const ShortLoops here(problem.nominal_flops());
//   ...                       // parallel loops: of few operations they stay in this thread
//
// Chunks are the same ones in the same order, so results have the same bits.
#pragma once

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API ShortLoops {
 public:
  // flops: floating-point operations of all loops in the scope together, roughly.
  explicit ShortLoops(double flops);
  ~ShortLoops();
  ShortLoops(const ShortLoops&) = delete;
  ShortLoops& operator=(const ShortLoops&) = delete;

 private:
  const bool before_;
};

// What is worth other threads: from so many operations on; a tenth of it inside parallel_region(),
// where they are awake. Tests that compare numbers of threads on small problems set it to 0.
inline constexpr double kFlopsWorthThreads = 5e5;
CONVSCOPE_API void set_flops_worth_threads(double flops);

}  // namespace convscope
