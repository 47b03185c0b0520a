// SPDX-License-Identifier: Apache-2.0
// bench_ladder.h: `convscope bench conv2d --ladder`: the rungs of one algorithm from its lesson to
// the fastest.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/bench/bench_tasks.h"

namespace convscope {

struct LadderArguments {
  std::string ladders;                  // "all", or names joined by commas
  std::vector<Conv2dProblem> problems;  // empty: each ladder's default problem
  std::vector<Direction> directions;
  std::int64_t batch = 0;  // replaces the batch of a ladder's default problem; 0: unchanged
};

// Returns the exit code. Times the rungs with `settings`, in which it stores the measured peaks.
int bench_ladders(const LadderArguments& arguments, BenchFiles& files,
                  BenchReportSettings settings);

}  // namespace convscope
