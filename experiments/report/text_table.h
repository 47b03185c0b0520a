// SPDX-License-Identifier: Apache-2.0
// text_table.h: prints any table as Markdown, CSV or JSON, and averages repeated measurements.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Mean and standard deviation (n - 1) of repeated measurements, and their median and median
// absolute deviation, which one disturbed measurement does not change.
struct MeanStd {
  std::int64_t count = 0;
  double mean = 0, std = 0;  // std is 0 for fewer than two values
  double median = 0, mad = 0;
  bool operator==(const MeanStd&) const = default;
  bool operator<(const MeanStd& other) const { return mean < other.mean; }
};

inline constexpr int kWhole = -1;

// One value of a table; monostate: no value.
using TableCell = std::variant<std::monostate, std::int64_t, double, std::string, bool, MeanStd>;

// A table for people (Markdown, LaTeX: table/latex_table.h) and programs (CSV, JSON).
struct TextTable {
  struct Column {
    std::string name;
    int digits = 6;         // significant digits for people; 0 = two decimals (percent),
                            // kWhole = no decimals
    bool is_mean = false;   // a MeanStd: people read "0.99 ± 0.01", programs name and name_std
    std::string unit = {};  // in the head of a LaTeX table
    // Times: people read the median ± the median absolute deviation; CSV and JSON also have
    // name_median and name_mad.
    bool is_time = false;
  };
  std::vector<Column> columns;
  std::vector<std::vector<TableCell>> rows;
};
// Returns Markdown with columns padded to one width, readable in a terminal too.
CONVSCOPE_API std::string to_markdown(const TextTable& table);
CONVSCOPE_API std::string to_csv(const TextTable& table);  // RFC 4180
CONVSCOPE_API std::string to_json(const TextTable& table);
// Returns a cell of CSV, in quotes where RFC 4180 requires them.
std::string csv_quoted(const std::string& text);
// Returns a list of JSON objects as CSV, with the columns of `names`, an object with the same keys.
template <class Json>
std::string json_rows_csv(const Json& names, const Json& rows) {
  TextTable table;
  for (const auto& [name, value] : names.items()) table.columns.push_back({name});
  for (const Json& row : rows) {
    std::vector<TableCell>& cells = table.rows.emplace_back();
    for (const Json& value : row) {
      cells.push_back(value.is_string()           ? TableCell(value.template get<std::string>())
                      : value.is_boolean()        ? TableCell(value.template get<bool>())
                      : value.is_number_integer() ? TableCell(value.template get<std::int64_t>())
                      : value.is_number()         ? TableCell(value.template get<double>())
                                                  : TableCell());
    }
  }
  return to_csv(table);
}

// Returns a value for people; "-": no value.
CONVSCOPE_API std::string cell_text(const TableCell& cell, int digits);
// Returns a cell for people; a mean of times becomes the median and the median absolute deviation.
CONVSCOPE_API TableCell shown_cell(const TableCell& cell, const TextTable::Column& column);
// Compares two cells by value, for sorting. Cells without a value come last, whether ascending or
// descending.
CONVSCOPE_API bool cell_before(const TableCell& a, const TableCell& b, bool descending);
// Returns the number of terminal columns of UTF-8 text: its number of code points.
CONVSCOPE_API std::size_t shown_width(const std::string& text);

CONVSCOPE_API MeanStd mean_std(const std::vector<double>& values);
// Returns "0.003614 ± 0.000012": the mean with `digits` significant digits (0: two decimals), and
// the deviation with the same decimals.
CONVSCOPE_API std::string mean_std_text(const MeanStd& value, int digits = 4);
// Returns the value with its mean replaced by the median, and its deviation by the median absolute
// deviation.
CONVSCOPE_API MeanStd as_median(MeanStd value);

}  // namespace convscope
