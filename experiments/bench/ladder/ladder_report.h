// SPDX-License-Identifier: Apache-2.0
// ladder_report.h: the output of `bench conv2d --ladder`: a table for people, JSON and CSV for
// programs.
#pragma once

#include <string>
#include <vector>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/ladder/ladder_bench.h"

namespace convscope {

inline constexpr const char* kLadderFormat = "convscope bench conv2d ladder 1";

CONVSCOPE_API std::string ladder_table(const LadderResult& result);

// Returns the report as JSON: machine, settings, and each ladder with its rungs.
CONVSCOPE_API std::string ladder_json(const std::vector<LadderResult>& results,
                                      const BenchReportSettings& settings);
// Returns the rungs of the JSON as CSV with a header line.
CONVSCOPE_API std::string ladder_csv(const std::vector<LadderResult>& results,
                                     const BenchReportSettings& settings);

}  // namespace convscope
