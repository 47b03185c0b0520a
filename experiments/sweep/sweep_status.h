// SPDX-License-Identifier: Apache-2.0
// sweep_status.h: `convscope sweep FOLDER --status`: how far each member is, and on which host.
#pragma once

#include <string>

#include "experiments/report/text_table.h"

namespace convscope {

struct SweepStatus {
  TextTable table;      // a row for each member
  std::string summary;  // "12 members: 4 done, 2 running, 6 queued; job 17 of Slurm"
};

// From its files alone, and from Slurm where it is asked. States: done, failed, running, queued
// (Slurm will begin it), stopped (it has a checkpoint, and nobody works on it), to do.
CONVSCOPE_API SweepStatus sweep_status(const std::string& folder);

}  // namespace convscope
