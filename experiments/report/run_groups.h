// SPDX-License-Identifier: Apache-2.0
// run_groups.h: combines runs that differ only in their seed: as mean and standard deviation, and
// for times also as median and median absolute deviation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/report/run_data.h"
#include "experiments/report/text_table.h"

namespace convscope {

using Spread = MeanStd;
// Returns the spread of finite values; without any, the mean is NaN.
CONVSCOPE_API Spread spread_of(const std::vector<double>& values);

struct CONVSCOPE_API RunGroup {
  std::string label;  // the runs' name, and what distinguishes groups of this name
  std::vector<RunData> runs;

  Spread of(const std::function<double(const RunData&)>& value) const;
  // Returns mean and deviation of a quantity of summary.json over the runs. Runs without a value do
  // not count.
  Spread summary_spread(const std::function<double(const RunSummary&)>& value) const;
  // Returns the median and the median absolute deviation of a time. One disturbed run does not
  // change them.
  Spread time_spread(const std::function<double(const RunSummary&)>& value) const;
  std::size_t disturbed() const;  // number of runs during which other programs used the cores
};

struct RunSet {
  std::vector<RunGroup> groups;      // in the order of their first runs
  std::vector<std::string> remarks;  // runs that were left out, and broken lines
};

// Groups runs whose name, device, instruction set, number of threads and config (except `seed`) are
// equal. If several runs have the same seed, the last one counts.
CONVSCOPE_API RunSet group_runs(std::vector<RunData> runs);

}  // namespace convscope
