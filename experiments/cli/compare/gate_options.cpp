// SPDX-License-Identifier: Apache-2.0
// gate_options.cpp: --fail-above and --require-all of `compare` and of `bench --against`.
#include "experiments/cli/compare/gate_options.h"

#include <cstdio>
#include <limits>

#include "experiments/cli/command.h"
#include "framework/io/clean_text.h"

namespace convscope {
namespace {

void say(const char* what, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    std::fprintf(stderr, "%s: %s\n", what, clean_text(line).c_str());
  }
}

}  // namespace

void add_gate_options(CommandLine& app, GateOptions& options) {
  app.add_option(
         "--fail-above", options.fail_above,
         "largest ratio of times (a benchmark's row, a run's step); a larger ratio that is beyond "
         "noise ends with exit code 7, or with 9 (undecided) when other programs used the cores")
      ->type_name("FACTOR")
      ->positive();
  app.add_flag("--require-all", options.require_all,
               "exit code 7 when a row is missing on one side or a file is not finished (default "
               "with --fail-above)");
  app.add_flag("--no-require-all", options.no_require_all,
               "comparison of the common rows only; missing rows are no failure");
}

void check_gate(const char* command, const GateOptions& options) {
  if (options.require_all && options.no_require_all) {
    fail_usage(command, "expected one of --require-all and --no-require-all, got both");
  }
}

int pass_gate(const CompareResult& comparison, const GateOptions& options, bool both_ways) {
  const bool times = options.fail_above > 0;
  if (!times && !options.require_all) return 0;
  Gate gate = gate_of(
      comparison, times ? options.fail_above : std::numeric_limits<double>::infinity(), both_ways);
  if (options.no_require_all) gate.missing.clear();
  say("regression", gate.slower);
  say("undecided: the machine was busy", gate.undecided);
  say("missing", gate.missing);
  if (!gate.missing.empty()) {
    std::fprintf(stderr,
                 "expected all rows on both sides, because a row on one side is not compared; "
                 "measure it again, renew the baseline, or give --no-require-all\n");
  }
  if (gate.exit_code() == 9) {
    std::fprintf(stderr,
                 "undecided: measure both sides again on a quiet machine, or in turns with bench "
                 "--against\n");
  }
  return gate.exit_code();
}

}  // namespace convscope
