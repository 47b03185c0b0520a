// SPDX-License-Identifier: Apache-2.0
// sweep_worker.h: `convscope sweep FOLDER --work`: trains members of a sweep that another process
// has prepared, on any node that sees the folder. As many workers as wished may do so at once: each
// member is claimed by one (claim.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "experiments/sweep/claim.h"

namespace convscope {

struct WorkerOptions {
  std::string folder;
  std::optional<std::size_t> member;  // this one alone; else one after another until none is left
  bool quiet = false;
  ClaimTimes times = {};
};

// 0; with `member`: 1 when it failed. 128 + signal when it was stopped, with a checkpoint. A task
// of Slurm that is stopped because its time is up has itself queued again.
CONVSCOPE_API int work_on_sweep(const WorkerOptions& options);

}  // namespace convscope
