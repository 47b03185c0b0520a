// SPDX-License-Identifier: Apache-2.0
// run_columns.h: the columns of a table of runs: values of summary.json, the run's state, and every
// key of its config.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_table.h"
#include "experiments/report/text_table.h"

namespace convscope {

struct RunColumn {
  const char* name;
  int digits = 6;          // as TextTable::Column
  const char* unit = "";   // "s", "MiB", "%"
  const char* words = "";  // meaning for the legend; "": the name is enough
  bool measured = false;   // groups show the mean; otherwise the different values
  bool is_time = false;    // groups show the median to people
  TableCell (*of)(const RunSummary&) = nullptr;  // null: not from the summary
};

// Returns all columns in the order of the table. find_run_column() returns null for an unknown
// name.
CONVSCOPE_API const std::vector<RunColumn>& run_columns();
CONVSCOPE_API const RunColumn* find_run_column(const std::string& name);

// Returns the run's value of a column or config key, or an empty cell when the run has no value.
CONVSCOPE_API TableCell run_cell(const RunRow& row, const std::string& name);

// Fails, naming the nearest column or config key, unless `name` is a column, a key of one of the
// rows (after read_config()), or a known config key.
CONVSCOPE_API void check_run_column(const std::string& name, const std::vector<RunRow>& rows);

// Returns the table head of the columns.
CONVSCOPE_API TextTable::Column head_of(const std::string& name);

// Returns the explanations of those columns whose names need one, a line each.
CONVSCOPE_API std::string run_legend(const std::vector<std::string>& columns);

}  // namespace convscope
