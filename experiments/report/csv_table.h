// SPDX-License-Identifier: Apache-2.0
// csv_table.h: reads a CSV file of a run (epochs.csv, layers.csv, sparsity.csv, quant.csv,
// confusion.csv). A
// broken line is left out, and all other lines are read.
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
  // Returns the index, or -1 when there is no such column.
  int column(std::string_view name) const;
  // Returns the cell, or "" when there is no such column.
  const std::string& text(std::size_t row, std::string_view name) const;
  // Returns NaN for an empty cell and for a missing column.
  double number(std::size_t row, std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
};

// Parses RFC 4180 text with quoted cells. Leaves out rows with a wrong number of cells, rows with
// text in a column outside of `text_columns`, and a last line without line end, which is still
// being written. `problems` names these rows.
CONVSCOPE_API CsvTable parse_csv(std::string_view text, std::string_view file_name,
                                 const std::vector<std::string>& text_columns = {});

// Returns a finite or infinite number, or NaN when `text` is not a number.
CONVSCOPE_API double number_in(std::string_view text);

}  // namespace convscope
