// SPDX-License-Identifier: Apache-2.0
// bench_against.h: `convscope bench ... --against OTHER`: this build and another one in turns, on
// the same problems.
//
// Each turn of a case calls both programs, one after the other, the first one in every second turn
// the other: `PROGRAM bench ... --json FILE`. So whatever disturbs the machine disturbs both, and a
// build of any version that knows the options can be timed. The medians of the calls are the sample
// of each side, as those of several files of `convscope compare` are.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/bench/bench_tasks.h"
#include "experiments/cli/compare/gate_options.h"

namespace convscope {

struct AgainstOptions {
  std::string other;  // "": this build is timed alone
  int turns = 6;
  GateOptions gate;
  bool asked() const { return !other.empty(); }
};

void add_against_options(CommandLine& app, AgainstOptions& options);
// A usage error when --turns or a gate is given without --against.
void check_against(const char* command, const AgainstOptions& options);

// One case: the words behind the program's global options, "bench", "conv2d", "--problem", ...
using BenchWords = std::vector<std::string>;
// --device, --cache, --clock, --weights and --rounds.
BenchWords timing_words(const TimingArguments& arguments);

// `bench LAYER` of one problem in one direction, and of all of them.
template <class Problem>
BenchWords heavy_case(const char* layer, const Problem& problem, Direction direction,
                      const std::string& algorithm, const TimingArguments& timing) {
  BenchWords out = {"bench",        layer,         "--problem",
                    problem.text(), "--direction", std::string(name_of(direction)),
                    "--algorithm",  algorithm};
  const BenchWords more = timing_words(timing);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}
template <class Problem>
std::vector<BenchWords> heavy_cases(const char* layer, const std::vector<Problem>& problems,
                                    const std::vector<Direction>& directions,
                                    const std::string& algorithm, const TimingArguments& timing) {
  std::vector<BenchWords> out;
  for (const Problem& problem : problems) {
    for (const Direction direction : directions) {
      out.push_back(heavy_case(layer, problem, direction, algorithm, timing));
    }
  }
  return out;
}

// Prints the comparison, writes it to the files that `timing` names (the JSON of `convscope
// compare`), and returns the exit code. --min-time is that of all turns of a case together.
// `only_auto`: rows are what `auto` chose, whichever algorithm it was.
int bench_against(const char* command, const AgainstOptions& options, const TimingArguments& timing,
                  const std::vector<BenchWords>& cases, bool only_auto);

}  // namespace convscope
