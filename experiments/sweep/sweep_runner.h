// SPDX-License-Identifier: Apache-2.0
// sweep_runner.h: trains the unfinished members of a sweep, each in a separate process, and
// continues where an earlier call stopped.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "experiments/sweep/sweep_table.h"

namespace convscope {

struct SweepOptions {
  std::string root = "runs";
  int jobs = 1;               // simultaneous members, which share the threads
  bool retry_failed = false;  // also members whose failure would repeat itself
  bool quiet = false;
  std::vector<std::string> overrides;  // from the command line, for the record
  // For workers elsewhere (cluster/):
  SlurmSettings slurm;               // from the command line; replaces keys of the config
  bool detach = false;               // does not wait for the array
  std::string hosts;                 // a file for mpirun: one host per line
  bool jobs_by_default = true;       // no --jobs: as many workers as mpirun has slots
  std::vector<std::string> plugins;  // --plugin
};

struct SweepResult {
  int exit_code = 0;                   // 0; 1 when a member failed; 130 or 143 after a signal
  std::vector<SweepOutcome> outcomes;  // indexed like plan.members
};

// Fails when Slurm trains members of the sweep in this folder.
CONVSCOPE_API void refuse_array(const std::string& folder);

CONVSCOPE_API SweepResult run_sweep(const SweepPlan& plan, const SweepOptions& options);

}  // namespace convscope
