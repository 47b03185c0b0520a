// SPDX-License-Identifier: Apache-2.0
// gate_options.h: --fail-above and --require-all of `compare` and of `bench --against`: the exit
// code that a comparison ends with.
#pragma once

#include "experiments/cli/command_line.h"
#include "experiments/compare/comparison.h"

namespace convscope {

struct GateOptions {
  double fail_above = 0;  // 0: no time makes it fail
  bool require_all = false, no_require_all = false;
};

void add_gate_options(CommandLine& app, GateOptions& options);
// A usage error when they contradict each other.
void check_gate(const char* command, const GateOptions& options);

// Says on stderr what is slower, undecided and missing; returns the exit code. `both_ways`: what
// the first side lacks is missing too.
int pass_gate(const CompareResult& comparison, const GateOptions& options, bool both_ways);

}  // namespace convscope
