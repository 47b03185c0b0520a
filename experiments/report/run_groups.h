// SPDX-License-Identifier: Apache-2.0
// run_groups.h: runs that differ in nothing but their seed, taken together as mean and standard
// deviation, of times as median and median distance.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/report/run_data.h"
#include "experiments/report/text_table.h"

namespace convscope {

using Spread = MeanStd;
// Values that are not finite are left out; the mean of none is NaN.
CONVSCOPE_API Spread spread_of(const std::vector<double>& values);

struct CONVSCOPE_API RunGroup {
  std::string label;  // the runs' name, and what tells them from other groups of that name
  std::vector<RunData> runs;

  Spread of(const std::function<double(const RunData&)>& value) const;
  // A quantity of the summary; runs without one do not count.
  Spread of_summary(const std::function<double(const RunSummary&)>& value) const;
  // The same of a time: median and median distance, which one disturbed run does not move.
  Spread of_time(const std::function<double(const RunSummary&)>& value) const;
  std::size_t disturbed() const;  // runs beside which other programs used the cores
};

struct RunSet {
  std::vector<RunGroup> groups;      // in the order of their first runs
  std::vector<std::string> remarks;  // runs that were left out, broken lines
};

// Runs belong together when their name, their config but for `seed`, and their device, instruction
// set and number of threads agree. Of runs that agree in the seed as well, the last one counts.
CONVSCOPE_API RunSet group_runs(std::vector<RunData> runs);

}  // namespace convscope
