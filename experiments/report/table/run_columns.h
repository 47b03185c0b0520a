// SPDX-License-Identifier: Apache-2.0
// run_columns.h: the columns that a table of runs may have: what summary.json says, the run's
// state, and every key of its config.
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
  const char* words = "";  // what it means, for the legend; "": the name says it
  bool measured = false;   // several runs have a mean; of anything else the different values count
  bool is_time = false;    // and of this one people read the median
  TableCell (*of)(const RunSummary&) = nullptr;  // null: not of the summary
};

// In the order of the table; null when the name is none of them.
CONVSCOPE_API const std::vector<RunColumn>& run_columns();
CONVSCOPE_API const RunColumn* find_run_column(const std::string& name);

// The run's value of a column or of a config key; none when it has no such value.
CONVSCOPE_API TableCell run_cell(const RunRow& row, const std::string& name);

// An error that names the nearest column or config key, unless `name` is a column, a key that some
// of the rows has (read_config() first), or one that a config may have.
CONVSCOPE_API void check_run_column(const std::string& name, const std::vector<RunRow>& rows);

// Head of a table: these columns.
CONVSCOPE_API TextTable::Column head_of(const std::string& name);

// What the columns mean that need a word, a line each; "" when none does.
CONVSCOPE_API std::string run_legend(const std::vector<std::string>& columns);

}  // namespace convscope
