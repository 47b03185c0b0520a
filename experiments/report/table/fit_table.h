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

// Fits the table into lines of `width` characters. Columns in `order` may be dropped, the first one
// first; all other columns are kept. A column with equal cells moves below the table, unless it is
// in `stay`.
CONVSCOPE_API FittedTable fit_table(const TextTable& table, std::size_t width,
                                    const std::vector<std::string>& order,
                                    const std::vector<std::string>& stay);
}  // namespace convscope
