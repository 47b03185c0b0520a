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

// Mean and standard deviation (n - 1) of repeated measurements; and what one disturbed measurement
// does not move: their median, and the median distance from it.
struct MeanStd {
  std::int64_t count = 0;
  double mean = 0, std = 0;  // std is 0 for fewer than two values
  double median = 0, mad = 0;
  bool operator==(const MeanStd&) const = default;
  bool operator<(const MeanStd& other) const { return mean < other.mean; }
};

inline constexpr int kWhole = -1;

// One value of a table; monostate: there is none.
using TableCell = std::variant<std::monostate, std::int64_t, double, std::string, bool, MeanStd>;

// A table of anything: for people (Markdown, LaTeX: table/latex_table.h) and programs (CSV, JSON).
struct TextTable {
  struct Column {
    std::string name;
    int digits = 6;         // significant ones for people; 0 = two decimals (percent),
                            // kWhole = no decimals
    bool is_mean = false;   // of MeanStd: people read "0.99 ± 0.01", programs name and name_std
    std::string unit = {};  // in the head of a LaTeX table
    // Times: people read median ± median distance, programs name_median and name_mad too.
    bool is_time = false;
  };
  std::vector<Column> columns;
  std::vector<std::vector<TableCell>> rows;
};
// Columns padded to one width, so that it reads well in a terminal too.
CONVSCOPE_API std::string to_markdown(const TextTable& table);
CONVSCOPE_API std::string to_csv(const TextTable& table);  // RFC 4180
CONVSCOPE_API std::string to_json(const TextTable& table);

// A value as people read it; "-": there is none.
CONVSCOPE_API std::string cell_text(const TableCell& cell, int digits);
// What people read of a cell: of a mean of times its median and the median distance.
CONVSCOPE_API TableCell shown_cell(const TableCell& cell, const TextTable::Column& column);
// The order of sorting: by value, and what has none comes last either way.
CONVSCOPE_API bool cell_before(const TableCell& a, const TableCell& b, bool descending);
// Places of a terminal that UTF-8 text takes: its bytes that do not continue a character.
CONVSCOPE_API std::size_t shown_width(const std::string& text);

CONVSCOPE_API MeanStd mean_std(const std::vector<double>& values);
// "0.003614 ± 0.000012": the mean with `digits` significant digits (0: two decimals), both with as
// many decimals.
CONVSCOPE_API std::string mean_std_text(const MeanStd& value, int digits = 4);
// With the median in place of the mean, and the median distance in place of the deviation.
CONVSCOPE_API MeanStd as_median(MeanStd value);

}  // namespace convscope
