// SPDX-License-Identifier: Apache-2.0
// bench_remarks.h: messages of the benchmarks on stderr.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/bench/peaks/measure_peaks.h"

namespace convscope {

// Writes progress to stderr: a line that is overwritten on a terminal, else one line per step.
class BenchRemarks {
 public:
  explicit BenchRemarks(std::size_t steps);
  void begin(const std::string& title);
  void say(const std::string& what) const;
  void clear() const;

 private:
  const bool quiet_, terminal_;
  const std::size_t steps_;
  std::size_t step_ = 0;
  std::string title_;
};

// Prints the text as one line on stderr; nothing when it is empty.
void remark(const std::string& text);

// Prints a line on stderr when other programs keep the cores busy.
void warn_of_load(int threads);

// Returns "warning: other programs used the cores in 3 of 36 cases ...", or "" when there is no
// such case. `loads` has one load per case.
std::string disturbed_cases(const std::vector<std::optional<double>>& loads, int threads);

// Returns this machine's measured peaks; a first measurement is announced on stderr.
CpuPeaks peaks_here();

}  // namespace convscope
