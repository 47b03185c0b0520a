// SPDX-License-Identifier: Apache-2.0
// bench_remarks.h: what the benchmarks say on stderr while they work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/bench/ceilings/measure_ceilings.h"

namespace convscope {

// One line on stderr that is written over; only on a terminal, one line a step elsewhere.
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

// The text as one line on stderr; nothing when it is empty.
void remark(const std::string& text);

// One line on stderr when other programs keep the cores busy.
void warn_of_load(int threads);

// "warning: other programs used the cores in 3 of 36 cases ..."; "" when in none. A load for each
// case.
std::string disturbed_cases(const std::vector<std::optional<double>>& loads, int threads);

// Those of this machine; measured once, which is said.
CpuCeilings ceilings_here();

}  // namespace convscope
