// SPDX-License-Identifier: Apache-2.0
// text_table.cpp: prints any table as Markdown, CSV or JSON, and averages repeated measurements.
#include "experiments/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/report/csv_table.h"
#include "framework/io/clean_text.h"
#include "framework/io/json_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Cell = TableCell;

std::string markdown_cell(const Cell& cell, const TextTable::Column& column) {
  std::string out;
  for (char c : clean_line(cell_text(shown_cell(cell, column), column.digits))) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

// Spreadsheets evaluate texts that begin like a formula; an apostrophe prevents this. Numbers and a
// single dash stay unchanged.
std::string no_formula(const std::string& text) {
  const bool begins = text.size() > 1 && std::string_view("=+-@\t").find(text[0]) < 5;
  if (!begins || !std::isnan(number_in(text))) return text;
  return "'" + text;
}

std::string csv_cell(const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&cell)) return fmt::format("{:.9g}", *number);
  if (const auto* yes = std::get_if<bool>(&cell)) return *yes ? "true" : "false";
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr) return "";
  return csv_quoted(no_formula(clean_text(*text)));
}

// For output that programs read: replaces a column of "mean ± deviation" by separate columns of
// numbers.
TextTable with_numbers_apart(const TextTable& table) {
  TextTable out;
  for (const TextTable::Column& column : table.columns) {
    out.columns.push_back(column);
    if (column.is_mean) out.columns.push_back({column.name + "_std", column.digits});
  }
  for (const TextTable::Column& column : table.columns) {  // later columns come last
    if (!column.is_mean || !column.is_time) continue;
    for (const char* what : {"_median", "_mad"}) {
      out.columns.push_back({column.name + what, column.digits});
    }
  }
  for (const std::vector<Cell>& row : table.rows) {
    std::vector<Cell>& cells = out.rows.emplace_back();
    for (std::size_t k = 0; k < row.size(); ++k) {
      const auto* mean = std::get_if<MeanStd>(&row[k]);
      if (mean == nullptr) {
        cells.push_back(row[k]);
        if (table.columns[k].is_mean) cells.emplace_back();
        continue;
      }
      cells.push_back(mean->count == 0 ? Cell() : Cell(mean->mean));
      if (table.columns[k].is_mean) cells.push_back(mean->count < 2 ? Cell() : Cell(mean->std));
    }
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (!table.columns[k].is_mean || !table.columns[k].is_time) continue;
      const auto* mean = std::get_if<MeanStd>(&row[k]);
      const bool there = mean != nullptr && mean->count > 0;
      cells.push_back(there ? Cell(mean->median) : Cell());
      cells.push_back(there && mean->count > 1 ? Cell(mean->mad) : Cell());
    }
  }
  return out;
}

}  // namespace

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::size_t shown_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

bool cell_before(const Cell& a, const Cell& b, bool descending) {
  if (a.index() == 0 || b.index() == 0) return a.index() != 0 && b.index() == 0;
  // Converts integers to double, because a key may be 1 in one config and 0.5 in another.
  const auto as_number = [](const Cell& cell) -> Cell {
    const auto* whole = std::get_if<std::int64_t>(&cell);
    return whole == nullptr ? cell : Cell(static_cast<double>(*whole));
  };
  return descending ? as_number(b) < as_number(a) : as_number(a) < as_number(b);
}

std::string cell_text(const Cell& cell, int digits) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&cell)) {
    if (digits == kWhole) return fmt::format("{:.0f}", *number);
    return digits == 0 ? fmt::format("{:.2f}", *number) : fmt::format("{:.{}g}", *number, digits);
  }
  if (const auto* yes = std::get_if<bool>(&cell)) return *yes ? "true" : "false";
  if (const auto* mean = std::get_if<MeanStd>(&cell)) return mean_std_text(*mean, digits);
  return "-";
}

Cell shown_cell(const Cell& cell, const TextTable::Column& column) {
  const auto* mean = std::get_if<MeanStd>(&cell);
  return mean != nullptr && column.is_time ? Cell(as_median(*mean)) : cell;
}

std::string to_markdown(const TextTable& table) {
  std::vector<std::vector<std::string>> lines(table.rows.size());
  std::vector<std::string> names;
  std::vector<std::size_t> widths;
  for (std::size_t k = 0; k < table.columns.size(); ++k) {
    names.push_back(table.columns[k].name);
    std::size_t width = std::max<std::size_t>(3, names[k].size());
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      lines[i].push_back(markdown_cell(table.rows[i][k], table.columns[k]));
      width = std::max(width, shown_width(lines[i].back()));
    }
    widths.push_back(width);
  }
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      out +=
          (i == 0 ? "| " : " | ") + cells[i] + std::string(widths[i] - shown_width(cells[i]), ' ');
    }
    out += " |\n";
  };
  add_line(names);
  std::vector<std::string> rule;
  for (std::size_t width : widths) rule.emplace_back(width, '-');
  add_line(rule);
  for (const auto& line : lines) add_line(line);
  return out;
}

std::string to_csv(const TextTable& given) {
  const TextTable table = with_numbers_apart(given);
  std::string out;
  for (std::size_t k = 0; k < table.columns.size(); ++k) {
    out += (k == 0 ? "" : ",") + table.columns[k].name;
  }
  out += "\n";
  for (const std::vector<Cell>& row : table.rows) {
    std::vector<std::string> cells;
    for (const Cell& cell : row) cells.push_back(csv_cell(cell));
    out += join(cells, ",") + "\n";
  }
  return out;
}

std::string to_json(const TextTable& given) {
  const TextTable table = with_numbers_apart(given);
  using json = nlohmann::ordered_json;
  json out = json::array();
  for (const std::vector<Cell>& row : table.rows) {
    json object = json::object();
    for (std::size_t k = 0; k < row.size(); ++k) {
      std::visit(
          [&](const auto& value) {
            using Value = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<Value, std::monostate> || std::is_same_v<Value, MeanStd>) {
              object[table.columns[k].name] = nullptr;
            } else {
              object[table.columns[k].name] = value;
            }
          },
          row[k]);
    }
    out.push_back(std::move(object));
  }
  return json_text(out);
}

namespace {

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

}  // namespace

MeanStd mean_std(const std::vector<double>& values) {
  MeanStd out{.count = static_cast<std::int64_t>(values.size())};
  if (values.empty()) return out;
  out.median = median_of(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - out.median));
  out.mad = median_of(distances);
  // Sum the differences from the first value: for equal values, mean and deviation are then exact.
  for (double value : values) out.mean += value - values[0];
  out.mean = values[0] + out.mean / static_cast<double>(values.size());
  if (values.size() < 2) return out;
  double squares = 0;
  for (double value : values) squares += (value - out.mean) * (value - out.mean);
  out.std = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return out;
}

MeanStd as_median(MeanStd value) {
  value.mean = value.median;
  value.std = value.mad;
  return value;
}

std::string mean_std_text(const MeanStd& value, int digits) {
  if (value.count == 0) return "-";
  if (value.count == 1) return cell_text(value.mean, digits);
  const double size = std::abs(value.mean);
  const int before =
      size > 0 && std::isfinite(size) ? static_cast<int>(std::floor(std::log10(size))) : 0;
  const int decimals = digits == kWhole ? 0
                       : digits == 0    ? 2
                                        : std::clamp(digits - 1 - before, 0, 12);
  return fmt::format("{:.{}f} ± {:.{}f}", value.mean, decimals, value.std, decimals);
}

}  // namespace convscope
