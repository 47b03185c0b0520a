// SPDX-License-Identifier: Apache-2.0
// ladder_data.h: the contents of files of `convscope bench conv2d --ladder NAME --json`, for plots.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/bench_head.h"

namespace convscope {

// One rung; a number 0 means no value.
struct LadderRung {
  std::string name, adds;
  std::string left_out;  // why it was not timed, or ""
  double median_ms = 0, gflops = 0, peak_percent = 0, factor = 0;
};

// One ladder, measured in one run on one problem and one direction.
struct MeasuredLadder {
  std::string name, problem, direction;
  std::string measured_on;  // "cpu: Intel Xeon, 2 threads"
  double peak_gflops = 0, total_factor = 0;
  std::vector<LadderRung> rungs;
};

struct LadderSet {
  std::vector<MeasuredLadder> ladders;
  std::vector<BenchHead> heads = {};  // one per file
};

// Returns whether the file is a ladder file. Returns false for an unreadable file, because another
// reader reports the reason.
CONVSCOPE_API bool is_ladder_file(const std::string& file);

// Reads the files. Fails with one sentence when a file cannot be read (kIo), is of another kind,
// has no ladder or a rung without a name (kData).
CONVSCOPE_API LadderSet read_ladders(const std::vector<std::string>& files);

}  // namespace convscope
