// SPDX-License-Identifier: Apache-2.0
// sweep_status.h: `convscope sweep FOLDER --status`: progress and host of each member.
#pragma once

#include <string>

#include "experiments/report/text_table.h"

namespace convscope {

struct SweepStatus {
  TextTable table;      // one row per member
  std::string summary;  // "12 members: 4 done, 2 running, 6 queued; job 17 of Slurm"
};

// Returns the status from the sweep's files, and from Slurm if it is available. States: done,
// failed, running, queued (Slurm will begin it), stopped (has a checkpoint and is not being
// trained), to do.
CONVSCOPE_API SweepStatus sweep_status(const std::string& folder);

}  // namespace convscope
