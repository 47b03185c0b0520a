// SPDX-License-Identifier: Apache-2.0
// row_filter.cpp: selects the runs of a table.
#include "experiments/report/table/row_filter.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "experiments/report/csv_table.h"
#include "experiments/report/table/run_columns.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr const char* kMarks = "=!<>~";

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Returns a number with all its digits, so that comparisons use the value in the files.
std::string exact_text(const TableCell& cell) { return cell_text(cell, 17); }

// Returns NaN when the value is not a number.
double number_of(const TableCell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  const auto* text = std::get_if<std::string>(&cell);
  return text == nullptr ? std::nan("") : number_in(*text);
}

bool equals(const TableCell& cell, const std::string& value) {
  if (cell.index() == 0 || value.empty()) return cell.index() == 0 && value.empty();
  const double a = number_of(cell), b = number_in(value);
  return std::isnan(a) || std::isnan(b) ? exact_text(cell) == value : a == b;
}

bool holds(const std::string& op, const auto& a, const auto& b) {
  return op == "<" ? a < b : op == "<=" ? a <= b : op == ">" ? a > b : a >= b;
}

bool fits(const RowFilter& filter, const TableCell& cell) {
  if (filter.op == "=" || filter.op == "==") return equals(cell, filter.value);
  if (filter.op == "!=") return !equals(cell, filter.value);
  const bool holds_text =
      cell.index() != 0 && exact_text(cell).find(filter.value) != std::string::npos;
  if (filter.op == "~") return holds_text;
  if (filter.op == "!~") return !holds_text;
  if (cell.index() == 0) return false;
  const double a = number_of(cell), b = number_in(filter.value);
  const bool is_text = std::holds_alternative<std::string>(cell);
  if (std::isnan(b) && !is_text) {
    fail(ErrorKind::kInvalid, "report",
         cat("--filter '", filter.text, "': expected a number after '", filter.op, "' because ",
             filter.key, " is ", exact_text(cell), " in a run, got '", filter.value, "'"));
  }
  if (!std::isnan(a) && !std::isnan(b)) return holds(filter.op, a, b);
  // "7/3" is a kernel size but not a number, so it is neither below nor above a number.
  return std::isnan(b) && holds(filter.op, exact_text(cell), filter.value);
}

}  // namespace

RowFilter parse_filter(const std::string& text) {
  const auto refuse = [&](const std::string& got) {
    fail(
        ErrorKind::kInvalid, "report",
        cat("--filter '", text, "': expected KEY=VALUE or another of == != < <= > >= ~ !~ such as ",
            "'optim.lr<0.1' or 'name~lenet', got ", got));
  };
  const std::size_t at = text.find_first_of(kMarks);
  if (at == std::string::npos) refuse("no such operator");
  const std::size_t end = std::min(text.find_first_not_of(kMarks, at), text.size());
  RowFilter out{.text = text,
                .key = trimmed(text.substr(0, at)),
                .op = text.substr(at, end - at),
                .value = trimmed(text.substr(end))};
  const std::vector<std::string> known = {"=", "==", "!=", "<", "<=", ">", ">=", "~", "!~"};
  if (std::ranges::count(known, out.op) == 0) refuse(cat("the operator '", out.op, "'"));
  if (out.key.empty()) refuse("nothing before the operator");
  const bool may_be_empty = out.op == "=" || out.op == "==" || out.op == "!=";
  if (out.value.empty() && !may_be_empty) refuse("nothing after the operator");
  return out;
}

std::vector<RunRow> filtered(std::vector<RunRow> rows, const std::vector<RowFilter>& filters) {
  for (const RowFilter& filter : filters) check_run_column(filter.key, rows);
  std::erase_if(rows, [&](const RunRow& row) {
    return !std::ranges::all_of(
        filters, [&](const RowFilter& filter) { return fits(filter, run_cell(row, filter.key)); });
  });
  return rows;
}

std::vector<RunRow> tagged(std::vector<RunRow> rows, const std::vector<std::string>& tags) {
  const auto tags_of = [](const RunRow& row) {
    std::set<std::string> out;
    const std::string& text = row.summary.tags;  // "a, b"
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      out.insert(trimmed(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return out;
  };
  std::erase_if(rows, [&](const RunRow& row) {
    const std::set<std::string> own = tags_of(row);
    return !std::ranges::all_of(tags, [&](const std::string& tag) { return own.contains(tag); });
  });
  return rows;
}

}  // namespace convscope
