// SPDX-License-Identifier: Apache-2.0
// latex_table.cpp: a table for a paper: tabular with the rules of booktabs.
#include "experiments/report/table/latex_table.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "experiments/report/csv_table.h"
#include "framework/number_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

// Characters of one or several bytes that LaTeX would not print as they are.
constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
    {"\\", "\\textbackslash{}"},
    {"{", "\\{"},
    {"}", "\\}"},
    {"&", "\\&"},
    {"%", "\\%"},
    {"$", "\\$"},
    {"#", "\\#"},
    {"_", "\\_"},
    {"~", "\\textasciitilde{}"},
    {"^", "\\textasciicircum{}"},
    {"<", "$<$"},
    {">", "$>$"},
    {"|", "$|$"},
    {"\"", "''"},
    {"\n", " "},
    {"±", "$\\pm$"},
    {"×", "$\\times$"},
    {"→", "$\\to$"},
    {"…", "\\ldots{}"},
};

bool is_number(const TableCell& cell) {
  return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell) ||
         std::holds_alternative<MeanStd>(cell);
}

// Formats a number: "1.2e-05" becomes 1.2 times a power of ten; "-3" gets a minus sign instead of a
// hyphen.
std::string number_text(const std::string& text) {
  const std::size_t mark = std::min(text.find('e'), text.size());
  const std::optional<int> power =
      parse_number<int>(std::string_view(text).substr(std::min(mark + 1, text.size())));
  if (!power) return text.starts_with("-") ? "$" + text + "$" : text;
  return cat("$", text.substr(0, mark), " \\times 10^{", *power, "}$");
}

std::string latex_cell(const TableCell& cell, int digits) {
  const std::string text = cell_text(cell, digits);
  if (cell.index() == 0 || text == "-") return "--";
  if (!is_number(cell)) {
    return std::isfinite(number_in(text)) ? number_text(text) : latex_escaped(text);
  }
  const std::size_t deviation = text.find("±");
  if (deviation == std::string::npos) return number_text(text);
  return cat("$", text.substr(0, deviation), "\\pm", text.substr(deviation + 2), "$");
}

}  // namespace

std::string latex_escaped(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto mark = std::ranges::find_if(
        kMarks, [&](const auto& pair) { return rest.starts_with(pair.first); });
    if (mark == std::end(kMarks)) {
      out += text[at++];
    } else {
      out += mark->second;
      at += mark->first.size();
    }
  }
  return out;
}

std::string to_latex(const TextTable& table) {
  std::string places;
  std::vector<std::string> heads;
  for (std::size_t k = 0; k < table.columns.size(); ++k) {
    const auto fits = [&](const auto& row) { return row[k].index() == 0 || is_number(row[k]); };
    places += !table.rows.empty() && std::ranges::all_of(table.rows, fits) ? 'r' : 'l';
    const TextTable::Column& column = table.columns[k];
    heads.push_back(latex_escaped(column.name) +
                    (column.unit.empty() ? "" : " (" + latex_escaped(column.unit) + ")"));
  }
  std::string out = "% \\usepackage{booktabs}\n\\begin{tabular}{" + places + "}\n\\toprule\n" +
                    join(heads, " & ") + " \\\\\n\\midrule\n";
  for (const std::vector<TableCell>& row : table.rows) {
    std::vector<std::string> cells;
    for (std::size_t k = 0; k < row.size(); ++k) {
      const TextTable::Column& column = table.columns[k];
      cells.push_back(latex_cell(shown_cell(row[k], column), column.digits));
    }
    out += join(cells, " & ") + " \\\\\n";
  }
  return out + "\\bottomrule\n\\end{tabular}\n";
}

}  // namespace convscope
