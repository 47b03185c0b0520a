// SPDX-License-Identifier: Apache-2.0
// row_groups.h: combines runs that have equal values of some keys into one row with mean and
// standard deviation.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

struct GroupedRuns {
  TextTable table;                  // keys, n, columns
  std::vector<std::string> varies;  // config keys that differ inside a group
  std::int64_t unfinished = 0;      // number of unfinished runs that count
  std::int64_t disturbed = 0;       // number of runs during which other programs used the cores
};

// Returns the columns `keys`, `n` (runs in the group) and `columns`. Measured columns have mean and
// standard deviation over the runs with a value; people see the median for times. Other columns
// list the different values. A last column `busy` counts disturbed runs. The keys of all configs
// must have been read. Groups are in the order of their first runs.
CONVSCOPE_API GroupedRuns group_rows(const std::vector<RunRow>& rows,
                                     const std::vector<std::string>& keys,
                                     const std::vector<std::string>& columns);

// Returns whether runs that differ only in this key of their configs are repetitions.
bool is_bookkeeping(const std::string& key);

// Sorts by a column of the table; fails for another name and lists the columns.
CONVSCOPE_API void sort_table(TextTable& table, const std::string& column, bool descending);

}  // namespace convscope
