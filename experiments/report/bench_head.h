// SPDX-License-Identifier: Apache-2.0
// bench_head.h: what a benchmark's JSON file says once for all of its rows: what was measured,
// when, where, by which program, with which settings, and whether the machine was quiet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct BenchHead {
  std::string file;
  std::string what;    // "conv2d", "conv2d ladder"; of its format
  std::string device;  // "cpu", "cuda:0"
  std::string device_name, isa;
  std::string started, version, commit;  // of the program
  std::string project;                   // git state of the folder where it was called
  std::string settings;                  // "cache warm, clock wall, ..."
  std::string command;                   // as it was called
  int threads = 0, cores = 0;            // 0: the file does not say
  std::optional<double> cores_of_others;
  bool complete = true;

  CONVSCOPE_API bool disturbed() const;
  // Why its figures may be wrong or too few; a sentence each.
  CONVSCOPE_API std::vector<std::string> warnings() const;
};

// From the file's members "format", "complete", "machine" and "settings", the last two as JSON
// texts; what is missing stays empty.
CONVSCOPE_API BenchHead bench_head(const std::string& file, const std::string& format,
                                   bool complete, const std::string& machine,
                                   const std::string& settings);

// "conv2d on AMD EPYC 9R14, 1 and 2 threads"
CONVSCOPE_API std::string bench_title(const std::vector<BenchHead>& heads);

}  // namespace convscope
