// SPDX-License-Identifier: Apache-2.0
// csv_table.cpp: reads a CSV file of a run (epochs.csv, layers.csv, sparsity.csv, quant.csv). A
// broken line is left out, and all other lines are read.
#include "experiments/report/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::size_t kReportedProblems = 3;  // per file; the others are counted

// Reads the cells of the record at `at` and moves `at` after the record. Returns false when the
// record has no end.
bool next_record(std::string_view text, std::size_t& at, std::vector<std::string>& cells) {
  cells.assign(1, "");
  bool quoted = false;
  while (at < text.size()) {
    const char c = text[at++];
    if (quoted) {
      if (c != '"') {
        cells.back() += c;
      } else if (at < text.size() && text[at] == '"') {
        cells.back() += '"';
        ++at;
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      cells.emplace_back();
    } else if (c == '\n') {
      return true;
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return false;
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error != std::errc::invalid_argument && end == text.data() + text.size();
}

}  // namespace

double number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size()
             ? value
             : std::numeric_limits<double>::quiet_NaN();
}

int CsvTable::column(std::string_view name) const {
  const auto it = std::find(columns.begin(), columns.end(), name);
  return it == columns.end() ? -1 : static_cast<int>(it - columns.begin());
}

const std::string& CsvTable::text(std::size_t row, std::string_view name) const {
  static const std::string none;
  const int at = column(name);
  return at < 0 ? none : rows[row][static_cast<std::size_t>(at)];
}

double CsvTable::number(std::size_t row, std::string_view name) const {
  return number_in(text(row, name));
}

std::vector<double> CsvTable::numbers(std::string_view name) const {
  std::vector<double> out;
  for (std::size_t row = 0; row < rows.size(); ++row) out.push_back(number(row, name));
  return out;
}

CsvTable parse_csv(std::string_view text, std::string_view file_name,
                   const std::vector<std::string>& text_columns) {
  CsvTable table;
  std::size_t skipped = 0;
  std::vector<std::string> cells;
  std::vector<bool> is_text;
  std::int64_t line = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const bool whole = next_record(text, at, cells);
    const std::int64_t here = line;
    line += std::count(text.begin() + static_cast<std::ptrdiff_t>(start),
                       text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    if (table.columns.empty()) {
      table.columns = cells;
      for (const std::string& name : cells) {
        is_text.push_back(std::find(text_columns.begin(), text_columns.end(), name) !=
                          text_columns.end());
      }
      continue;
    }
    std::string problem;
    if (!whole) {
      problem = "the line is cut short";
    } else if (cells.size() != table.columns.size()) {
      problem = cat("expected ", table.columns.size(), " cells, got ", cells.size());
    }
    for (std::size_t i = 0; problem.empty() && i < cells.size(); ++i) {
      if (is_text[i] || cells[i].empty() || is_number(cells[i])) continue;
      problem = cat("expected a number in column ", table.columns[i], ", got '",
                    cells[i].substr(0, 40), "'");
    }
    if (problem.empty()) {
      table.rows.push_back(cells);
    } else if (++skipped <= kReportedProblems) {
      table.problems.push_back(cat(file_name, ":", here, ": ", problem, "; the line is left out"));
    }
  }
  if (skipped > kReportedProblems) {
    table.problems.push_back(
        cat(file_name, ": ", skipped - kReportedProblems, " more lines are left out"));
  }
  return table;
}

}  // namespace convscope
