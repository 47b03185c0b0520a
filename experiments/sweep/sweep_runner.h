// SPDX-License-Identifier: Apache-2.0
// sweep_runner.h: trains the members of a sweep that are not finished yet, each in a process of its
// own, and goes on where an earlier call stopped.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "experiments/sweep/sweep_table.h"

namespace convscope {

struct SweepOptions {
  std::string root = "runs";
  int jobs = 1;               // members side by side; they share the threads
  bool retry_failed = false;  // also what failed before in a way that would repeat itself
  bool quiet = false;
  std::vector<std::string> overrides;  // as given on the command line, for the record
  // Of workers elsewhere (cluster/):
  SlurmSettings slurm;               // of the command line; they beat those of the config
  bool detach = false;               // does not wait for the array
  std::string hosts;                 // a file for mpirun: one host a line
  bool jobs_by_default = true;       // --jobs was not given: as many workers as mpirun has slots
  std::vector<std::string> plugins;  // --plugin
};

struct SweepResult {
  int exit_code = 0;                   // 0; 1 when a member failed; 130 or 143 after a signal
  std::vector<SweepOutcome> outcomes;  // beside plan.members
};

// An error when Slurm trains members of the sweep in this folder.
CONVSCOPE_API void refuse_array(const std::string& folder);

CONVSCOPE_API SweepResult run_sweep(const SweepPlan& plan, const SweepOptions& options);

}  // namespace convscope
