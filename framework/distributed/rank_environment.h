// SPDX-License-Identifier: Apache-2.0
// rank_environment.h: detects whether this process is one of several that were started together. It
// reads the variables that mpirun (Open MPI), mpiexec (MPICH) and srun (Slurm) set.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

struct RankEnvironment {
  int rank = 0;  // 0 ... size - 1
  int size = 1;
  int local_rank = 0;  // index among the processes of this host
  int local_size = 1;
  std::string launcher;  // "Open MPI", "MPICH", "Slurm"
  std::string mpi;       // the MPI library of the launcher: "Open MPI", "MPICH", "" = either
};

// Returns the environment of this process. Returns nothing when the process runs by itself, in a
// group of one, or with CONVSCOPE_ALONE set. `get` reads an environment variable; null reads the
// variables of this process. Throws when the variables contradict each other.
CONVSCOPE_API std::optional<RankEnvironment> rank_environment(
    const std::function<const char*(const char*)>& get = {});

}  // namespace convscope
