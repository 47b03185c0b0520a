// SPDX-License-Identifier: Apache-2.0
// fit_table.h: a table that fits a terminal: what all rows share moves below it, and what is least
// important is left out.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/text_table.h"

namespace convscope {

struct FittedTable {
  TextTable table;
  std::string shared;                 // "all rows: device cpu, threads 2"; "" when nothing is
  std::vector<std::string> left_out;  // names, in the order of the table
};

// `width`: places of a line. Columns of `order` may be left out, the first ones first; all others
// stay. Columns of `stay` stay even where all rows agree.
CONVSCOPE_API FittedTable fit_table(const TextTable& table, std::size_t width,
                                    const std::vector<std::string>& order,
                                    const std::vector<std::string>& stay);
}  // namespace convscope
