// SPDX-License-Identifier: Apache-2.0
// fit_table.h: fits a table to a terminal: values that all rows share move below it, and the least
// important columns are left out.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/text_table.h"

namespace convscope {

struct FittedTable {
  TextTable table;
  std::string shared;                 // "all rows: device cpu, threads 2", or ""
  std::vector<std::string> left_out;  // names, in the order of the table
};

// Returns the table for lines of `width` characters. The columns in `order` may be left out,
// beginning with the first; all other columns stay. The columns in `stay` stay even if all rows
// agree.
CONVSCOPE_API FittedTable fit_table(const TextTable& table, std::size_t width,
                                    const std::vector<std::string>& order,
                                    const std::vector<std::string>& stay);
}  // namespace convscope
