// SPDX-License-Identifier: Apache-2.0
// csv_rows.h: returns the rows of a CSV text with their cells by column name; quoted cells are not
// supported.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace convscope::testing {

using CsvRow = std::map<std::string, std::string>;

inline std::vector<CsvRow> csv_rows(const std::string& text) {
  const auto cells_of = [](const std::string& line) {
    std::vector<std::string> cells(1);
    for (const char c : line) c == ',' ? cells.emplace_back() : cells.back() += c;
    return cells;
  };
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> columns = cells_of(line);
  std::vector<CsvRow> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    EXPECT_EQ(cells.size(), columns.size()) << line;
    CsvRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < columns.size() && i < cells.size(); ++i) row[columns[i]] = cells[i];
  }
  return rows;
}

}  // namespace convscope::testing
