// SPDX-License-Identifier: Apache-2.0
// bench_sides.h: the timed rows of a file of `bench OPERATOR`, `bench conv2d --ladder`, `bench net`
// or `bench sparse_net`. Each row has a key, by which the same row is found in another file of the
// same kind.
#pragma once

#include <string>
#include <vector>

#include "experiments/compare/facts.h"

namespace convscope {

struct TimedRow {
  std::vector<std::string> key;  // parallel to BenchSide::key_names
  double median_ms = 0;
  double p10_ms = 0, p90_ms = 0;  // 0: not in the file
  std::vector<double> blocks_ms;  // medians of blocks of samples; empty in older files
  std::vector<double> files_ms;   // the medians of all files; median_ms: their geometric mean
  bool disturbed = false;         // other programs kept the cores busy
};

struct BenchSide {
  std::string given, kind;  // "conv2d", "net", "sparse_net", "ladder"...
  std::vector<std::string> files;
  std::vector<std::string> key_names;
  std::vector<TimedRow> rows;  // one for each key: the last one in the file
  Facts settings, environment;
  std::size_t not_timed = 0;                      // rows left out or wrong
  std::vector<std::vector<std::string>> dropped;  // keys that are not in all files of the side
  bool complete = true;                           // false: an unfinished benchmark
};

// Splits an argument into files: "a.json", or "a1.json,a2.json" for several calls of one program.
CONVSCOPE_API std::vector<std::string> files_in(const std::string& given);

// Reads one file, or several joined by commas. Throws an error when a file cannot be read (kIo), is
// not a benchmark or has no timed row (kData), or when the files are of different kinds (kInvalid).
CONVSCOPE_API BenchSide read_bench_side(const std::string& given);

}  // namespace convscope
