// SPDX-License-Identifier: Apache-2.0
// mpi_sweep.h: `convscope sweep CONFIG --launcher mpi`: workers on the nodes that mpirun reaches.
// Each worker takes the next free member. mpirun only starts the workers: no MPI library is used.
#pragma once

#include "experiments/launchers/launcher.h"
#include "experiments/sweep/sweep_runner.h"

namespace convscope {

CONVSCOPE_API SweepResult run_mpi_sweep(const SweepPlan& plan, const SweepOptions& options);

// Returns the words that start the workers.
CONVSCOPE_API std::vector<std::string> mpirun_words(const SweepPlan& plan,
                                                    const SweepOptions& options,
                                                    const Launcher& mpirun);

}  // namespace convscope
