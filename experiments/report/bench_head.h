// SPDX-License-Identifier: Apache-2.0
// bench_head.h: the facts in a benchmark's JSON file that hold for all of its rows: what was
// measured, when, where, by which program and settings, and whether the machine was quiet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct BenchHead {
  std::string file;
  std::string what;    // "conv2d", "conv2d ladder"; from its format
  std::string device;  // "cpu", "cuda:0"
  std::string device_name, isa;
  std::string started, version, commit;  // commit of the program
  std::string project;                   // git state of the folder of the call
  std::string settings;                  // "cache warm, clock wall, ..."
  std::string command;                   // command line of the call
  int threads = 0, cores = 0;            // 0: unknown
  std::optional<double> cores_of_others;
  bool complete = true;

  CONVSCOPE_API bool disturbed() const;
  // Returns a sentence for each reason why numbers may be wrong or incomplete.
  CONVSCOPE_API std::vector<std::string> warnings() const;
};

// Returns the head from the file's members "format", "complete", "machine" and "settings";
// `machine` and `settings` are passed as JSON texts. Missing values stay empty.
CONVSCOPE_API BenchHead bench_head(const std::string& file, const std::string& format,
                                   bool complete, const std::string& machine,
                                   const std::string& settings);

// Returns "conv2d on AMD EPYC 9R14, 1 and 2 threads".
CONVSCOPE_API std::string bench_title(const std::vector<BenchHead>& heads);

}  // namespace convscope
