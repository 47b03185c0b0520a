// SPDX-License-Identifier: Apache-2.0
// run_sides.h: selects the runs of one side of `convscope compare`.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

struct RunSide {
  std::string given;
  std::vector<RunRow> runs;          // with their configs; they differ only in the seed
  std::vector<std::string> remarks;  // what was left out
};

// Reads a side: `given` is a run folder, a folder of runs (runs/<name>, runs/<sweep>/<row>), or the
// name of such a folder below `root`. In a folder of runs, selects the runs with the same config,
// instruction set, device and number of threads as the newest run, and for each seed the latest
// one. Throws an error when there is no run (kIo) or the folder holds runs of several names
// (kInvalid).
CONVSCOPE_API RunSide read_run_side(const std::string& given, const std::string& root);

}  // namespace convscope
