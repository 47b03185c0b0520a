// SPDX-License-Identifier: Apache-2.0
// text_table.h: a table of anything as Markdown, CSV or JSON, and the mean of repeated
// measurements.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "framework/export.h"

namespace convscope {

// One value of a table; monostate: there is none.
using TableCell = std::variant<std::monostate, std::int64_t, double, std::string>;

// A table of anything, in the three forms of `convscope report`.
struct TextTable {
  struct Column {
    std::string name;
    int digits = 6;  // significant ones in Markdown; 0 = two decimals (percent)
  };
  std::vector<Column> columns;
  std::vector<std::vector<TableCell>> rows;
};
// Columns padded to one width, so that it reads well in a terminal too.
CONVSCOPE_API std::string to_markdown(const TextTable& table);
CONVSCOPE_API std::string to_csv(const TextTable& table);  // RFC 4180
CONVSCOPE_API std::string to_json(const TextTable& table);

// Mean and standard deviation (n - 1) of repeated measurements.
struct MeanStd {
  std::int64_t count = 0;
  double mean = 0, std = 0;  // std is 0 for fewer than two values
};
CONVSCOPE_API MeanStd mean_std(const std::vector<double>& values);
// "0.003614 ± 0.000012": the mean with four significant digits, both with as many decimals.
CONVSCOPE_API std::string mean_std_text(const MeanStd& value);

}  // namespace convscope
