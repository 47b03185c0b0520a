// SPDX-License-Identifier: Apache-2.0
// csv_table.h: a CSV file of a run (epochs.csv, layers.csv, sparsity.csv, quant.csv), read so that
// a broken line costs that line only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct CONVSCOPE_API CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as there are columns
  std::vector<std::string> problems;           // "epochs.csv:7: expected 20 cells, got 3"

  bool empty() const { return rows.empty(); }
  // -1 when there is no such column.
  int column(std::string_view name) const;
  // "" when there is no such column.
  const std::string& text(std::size_t row, std::string_view name) const;
  // NaN for an empty cell and for a column that does not exist.
  double number(std::size_t row, std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
};

// RFC 4180: cells may be quoted. Left out, and named in `problems`: a row with another number of
// cells than the head, a row with text in a column that is not listed in `text_columns`, and a last
// line without its end (it is still being written).
CONVSCOPE_API CsvTable parse_csv(std::string_view text, std::string_view file_name,
                                 const std::vector<std::string>& text_columns = {});

// A finite or infinite number, or NaN when `text` is none.
CONVSCOPE_API double number_in(std::string_view text);

}  // namespace convscope
