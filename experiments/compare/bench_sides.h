// SPDX-License-Identifier: Apache-2.0
// bench_sides.h: the timed rows of a file of `bench conv2d`, of its ladders, or of `bench net`,
// each with what names it in another file of the same kind.
#pragma once

#include <string>
#include <vector>

#include "experiments/compare/facts.h"

namespace convscope {

struct TimedRow {
  std::vector<std::string> key;  // beside BenchSide::key_names
  double median_ms = 0;
  double p10_ms = 0, p90_ms = 0;  // 0: not in the file
  std::vector<double> blocks_ms;  // medians of blocks of samples; empty in older files
};

struct BenchSide {
  std::string given, kind;  // kind: "conv2d", "ladder" or "net"
  std::vector<std::string> key_names;
  std::vector<TimedRow> rows;  // one for each key, the last in the file
  Facts settings, environment;
  std::size_t not_timed = 0;  // rows that were left out or wrong
};

// An error when the file cannot be read (kIo), or is no benchmark or has no timed row (kData).
CONVSCOPE_API BenchSide read_bench_side(const std::string& file);

}  // namespace convscope
