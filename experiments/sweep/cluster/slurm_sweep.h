// SPDX-License-Identifier: Apache-2.0
// slurm_sweep.h: runs `convscope sweep CONFIG --launcher slurm`. The members of the sweep are
// submitted as a job array of Slurm, one member per task. The folder of the sweep must be on a file
// system that all nodes see. In addition to the files of sweep_folder.h, the folder contains
//   sweep.slurm.sh         the submitted script (slurm_script.h)
//   sweep.slurm.json       the number of the array
//   sweep.slurm-<I>.log    messages of task I and of Slurm
#pragma once

#include <string>

#include "experiments/sweep/sweep_runner.h"

namespace convscope {

// Submits the unfinished members, or takes over the array of an earlier call, and waits for its
// end. `options.detach`: does not wait, and the result is empty.
CONVSCOPE_API SweepResult run_slurm_sweep(const SweepPlan& plan, const SweepOptions& options);

// Cancels the array that works on the sweep in this folder; its members write their checkpoints.
// Returns its number; fails when there is none.
CONVSCOPE_API std::string cancel_slurm_sweep(const std::string& folder);

// Returns the script for the unfinished members, for `--dry-run`.
CONVSCOPE_API std::string slurm_script_of(const SweepPlan& plan, const SweepOptions& options);

}  // namespace convscope
