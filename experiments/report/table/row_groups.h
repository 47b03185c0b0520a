// SPDX-License-Identifier: Apache-2.0
// row_groups.h: runs with the same values of some keys as one row: mean and standard deviation.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

struct GroupedRuns {
  TextTable table;                  // keys, n, columns
  std::vector<std::string> varies;  // keys of the config that differ inside a group
  std::int64_t unfinished = 0;      // runs that are not done and count all the same
  std::int64_t disturbed = 0;       // runs beside which other programs used the cores
};

// The columns `keys`, `n` (runs in the group) and `columns`: measured ones as mean and standard
// deviation (for people the median of times) over the runs that have a value, of all others the
// different values; last, where some were disturbed, `busy`: how many. The keys of every config
// must have been read. Groups stand in the order of their first runs.
CONVSCOPE_API GroupedRuns group_rows(const std::vector<RunRow>& rows,
                                     const std::vector<std::string>& keys,
                                     const std::vector<std::string>& columns);

// Sorts by one of the table's columns; an error that names them when it is none.
CONVSCOPE_API void sort_table(TextTable& table, const std::string& column, bool descending);

}  // namespace convscope
