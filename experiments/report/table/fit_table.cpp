// SPDX-License-Identifier: Apache-2.0
// fit_table.cpp: fits a table to a terminal.
#include "experiments/report/table/fit_table.h"

#include <algorithm>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::size_t kLongestText = 40;  // per cell of a table that is too wide

std::size_t width_of(const TextTable& table) {
  const std::string text = to_markdown(table);
  return shown_width(text.substr(0, text.find('\n')));
}

void remove_column(TextTable& table, std::size_t at) {
  const auto place = static_cast<std::ptrdiff_t>(at);
  table.columns.erase(table.columns.begin() + place);
  for (std::vector<TableCell>& row : table.rows) row.erase(row.begin() + place);
}

// Cuts between characters, not inside one.
void shorten(std::string& text) {
  std::size_t end = kLongestText - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text = text.substr(0, end) + "…";
}

}  // namespace

FittedTable fit_table(const TextTable& given, std::size_t width,
                      const std::vector<std::string>& order, const std::vector<std::string>& stay) {
  FittedTable out{.table = given, .shared = {}, .left_out = {}};
  TextTable& table = out.table;
  std::vector<std::string> shared;
  for (std::size_t k = 0; k < table.columns.size() && table.rows.size() > 1;) {
    const TableCell& first = table.rows.front()[k];
    const auto same = [&](const auto& row) { return row[k] == first; };
    const TextTable::Column& column = table.columns[k];
    if (std::ranges::count(stay, column.name) > 0 || !std::ranges::all_of(table.rows, same)) {
      ++k;
      continue;
    }
    out.shared += cat(out.shared.empty() ? "all rows: " : ", ", column.name, " ",
                      cell_text(first, column.digits));
    shared.push_back(column.name);
    remove_column(table, k);
  }
  if (width_of(table) > width) {
    for (std::vector<TableCell>& row : table.rows) {
      for (TableCell& cell : row) {
        auto* text = std::get_if<std::string>(&cell);
        if (text != nullptr && shown_width(*text) > kLongestText) shorten(*text);
      }
    }
  }
  for (const std::string& name : order) {
    if (width_of(table) <= width) break;
    const auto at = std::ranges::find(table.columns, name, &TextTable::Column::name);
    if (at != table.columns.end()) {
      remove_column(table, static_cast<std::size_t>(at - table.columns.begin()));
    }
  }
  for (const TextTable::Column& column : given.columns) {
    const bool kept = std::ranges::count(table.columns, column.name, &TextTable::Column::name) > 0;
    const bool below = std::ranges::count(shared, column.name) > 0;
    if (!kept && !below) out.left_out.push_back(column.name);
  }
  return out;
}

}  // namespace convscope
