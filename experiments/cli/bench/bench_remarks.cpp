// SPDX-License-Identifier: Apache-2.0
// bench_remarks.cpp: messages of the benchmarks on stderr.
#include "experiments/cli/bench/bench_remarks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "experiments/cli/command.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/check.h"

namespace convscope {

BenchRemarks::BenchRemarks(std::size_t steps)
    : quiet_(global_options().verbosity < 0), terminal_(isatty(2) == 1), steps_(steps) {}

void BenchRemarks::begin(const std::string& title) {
  title_ = cat("[", ++step_, "/", steps_, "] ", title);
  if (!quiet_ && !terminal_) std::fprintf(stderr, "%s\n", title_.c_str());
}

void BenchRemarks::say(const std::string& what) const {
  if (!quiet_ && terminal_) std::fprintf(stderr, "\r\033[K%s: %s", title_.c_str(), what.c_str());
}

void BenchRemarks::clear() const {
  if (!quiet_ && terminal_) std::fputs("\r\033[K", stderr);
}

void remark(const std::string& text) {
  if (!text.empty()) print_remark(text);
}

void warn_of_load(int threads) {
  if (global_options().verbosity < 0) return;
  remark(load_warning(cores_of_others(), threads, cores_online()));
}

std::string disturbed_cases(const std::vector<std::optional<double>>& loads, int threads) {
  const auto count = std::ranges::count_if(loads, [&](std::optional<double> others) {
    return is_disturbed(others, threads, cores_online());
  });
  if (count == 0) return "";
  return cat("warning: other programs used the cores in ", count, " of ", loads.size(),
             loads.size() == 1 ? " case" : " cases",
             ": their times may be too long (cores_of_others in the files)");
}

CpuPeaks peaks_here() {
  return cpu_peaks(
      [] { print_remark(cat("measuring this machine's peaks once, for ", cpu_peaks_path())); });
}

}  // namespace convscope
