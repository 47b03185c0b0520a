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

// Returns 0, or with `options.member` 1 when this member failed. Returns 128 + signal number when a
// signal stopped the worker after a checkpoint was written. A Slurm task that is stopped at its
// time limit queues itself again.
CONVSCOPE_API int work_on_sweep(const WorkerOptions& options);

}  // namespace convscope
