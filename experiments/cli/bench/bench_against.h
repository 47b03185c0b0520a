// SPDX-License-Identifier: Apache-2.0
// bench_against.h: `convscope bench ... --against OTHER`: times this build and another build in
// turns, on the same problems.
//
// In each turn of a case, both builds are called as `PROGRAM bench ... --json FILE`. Their order
// alternates, so that a disturbance of the machine affects both. The other program may be any
// version that has these options. The sample of a build consists of the medians of its calls, as
// with several files per side in `convscope compare`.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/bench/bench_tasks.h"
#include "experiments/cli/compare/gate_options.h"

namespace convscope {

struct AgainstOptions {
  std::string other;  // "": only this build is timed
  int turns = 6;
  GateOptions gate;
  bool asked() const { return !other.empty(); }
};

void add_against_options(CommandLine& app, AgainstOptions& options);
// Fails with a usage error when --turns or a gate is given without --against.
void check_against(const char* command, const AgainstOptions& options);

// The arguments of one case, after the program's global options: "bench", "conv2d", "--problem",
// ...
using BenchWords = std::vector<std::string>;
// Returns --device, --cache, --clock, --weights and --rounds as words.
BenchWords timing_words(const TimingArguments& arguments);

// Prints the comparison, writes it to the files that `timing` names (the JSON of `convscope
// compare`) and returns the exit code. --min-time is divided among the calls of a case. With
// `only_auto`, the rows that `auto` chose are compared, even if the two builds choose different
// algorithms.
int bench_against(const char* command, const AgainstOptions& options, const TimingArguments& timing,
                  const std::vector<BenchWords>& cases, bool only_auto);

}  // namespace convscope
