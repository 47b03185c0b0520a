// SPDX-License-Identifier: Apache-2.0
// surroundings.h: where a worker of a sweep was started: by Slurm, by mpirun, or by hand.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

struct WorkerSurroundings {
  std::string task = {};  // "slurm 17_3", "rank 2", "" by hand
  std::string call = {};  // of sweep.members.json (slurm_script.h); "" by hand
  int cores = 0;          // that Slurm gave it; 0: not said
  int beside = 1;         // workers on this host, itself included
};
CONVSCOPE_API WorkerSurroundings worker_surroundings();

// Whether Slurm has signalled this task because its time is up: a task that was cancelled, or is
// queued again by somebody else, is no longer running for Slurm.
CONVSCOPE_API bool time_is_up();
// "", or what Slurm said.
CONVSCOPE_API std::string queue_this_task_again();

}  // namespace convscope
