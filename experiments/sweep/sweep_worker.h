// SPDX-License-Identifier: Apache-2.0
// sweep_worker.h: `convscope sweep FOLDER --work`: trains members of a prepared sweep on any node
// that sees the folder. Any number of workers may run at once: each member is claimed by one worker
// (claim.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "experiments/sweep/claim.h"

namespace convscope {

struct WorkerOptions {
  std::string folder;
  std::optional<std::size_t> member;  // only this member; none: one after another, all
  bool quiet = false;
  ClaimTimes times = {};
};

// Returns 0. With `member`, returns 1 when the member failed. Returns 128 + signal when the worker
// was stopped with a checkpoint. A Slurm task that is stopped because its time is up queues itself
// again.
CONVSCOPE_API int work_on_sweep(const WorkerOptions& options);

}  // namespace convscope
