// SPDX-License-Identifier: Apache-2.0
// run_sides.h: which runs `convscope compare` takes for one side.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

struct RunSide {
  std::string given;
  std::vector<RunRow> runs;          // with their configs; they differ in nothing but the seed
  std::vector<std::string> remarks;  // what was left out
};

// `given` is a run folder, a folder of runs (runs/<name>, runs/<sweep>/<row>), or the name of one
// of these below `root`. Of a folder of runs: those that have the newest run's config, instruction
// set, device and number of threads; of two with the same seed the later one. An error (kIo) when
// there is no run, and (kInvalid) when the folder holds several names.
CONVSCOPE_API RunSide read_run_side(const std::string& given, const std::string& root);

}  // namespace convscope
