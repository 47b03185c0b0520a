// SPDX-License-Identifier: Apache-2.0
// gate_options.h: the options --fail-above and --require-all of `compare` and `bench --against`,
// which determine the exit code of a comparison.
#pragma once

#include "experiments/cli/command_line.h"
#include "experiments/compare/comparison.h"

namespace convscope {

struct GateOptions {
  double fail_above = 0;  // 0: times never fail
  bool require_all = false, no_require_all = false;
};

void add_gate_options(CommandLine& app, GateOptions& options);
// Fails with a usage error when the options contradict each other.
void check_gate(const char* command, const GateOptions& options);

// Prints on stderr what is slower, undecided or missing, and returns the exit code. A row that only
// the first side has is missing; with `both_ways`, a row that only the second side has is missing,
// too.
int pass_gate(const CompareResult& comparison, const GateOptions& options, bool both_ways);

}  // namespace convscope
