// SPDX-License-Identifier: Apache-2.0
// slurm_sweep.h: `convscope sweep CONFIG --launcher slurm`: the members as an array of jobs, one
// member a task. The folder of the sweep lies on a file system that all nodes see; beside what
// sweep_folder.h names it holds
//   sweep.slurm.sh         the script as it was submitted (slurm_script.h)
//   sweep.slurm.json       the number of the array
//   sweep.slurm-<I>.log    what task I and Slurm said
#pragma once

#include <string>

#include "experiments/sweep/sweep_runner.h"

namespace convscope {

// Submits what is left to train, or takes the array over that an earlier call has submitted, and
// waits for its end. `options.detach`: does not wait, the result is empty then.
CONVSCOPE_API SweepResult run_slurm_sweep(const SweepPlan& plan, const SweepOptions& options);

// Ends the array that works on the sweep in this folder; its members write their checkpoints.
// Returns its number; an error when there is none.
CONVSCOPE_API std::string cancel_slurm_sweep(const std::string& folder);

// The script for this sweep, for `--dry-run`: of the members that are not finished.
CONVSCOPE_API std::string slurm_script_of(const SweepPlan& plan, const SweepOptions& options);

}  // namespace convscope
