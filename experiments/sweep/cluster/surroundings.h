// SPDX-License-Identifier: Apache-2.0
// surroundings.h: how a worker of a sweep was started: by Slurm, by mpirun, or by hand.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

struct WorkerSurroundings {
  std::string task = {};  // "slurm 17_3", "rank 2", "" by hand
  std::string call = {};  // from sweep.members.json (slurm_script.h); "" by hand
  int cores = 0;          // given by Slurm; 0: unknown
  int beside = 1;         // workers on this host, itself included
};
CONVSCOPE_API WorkerSurroundings worker_surroundings();

// Returns the absolute form of a path.
std::string absolute_path(const std::string& path);

// Returns whether Slurm has signalled this task because its time limit is reached. The signal may
// also mean that another command cancelled or requeued the task; Slurm then no longer reports it as
// running.
CONVSCOPE_API bool time_is_up();
// Returns "", or Slurm's message.
CONVSCOPE_API std::string queue_this_task_again();

}  // namespace convscope
