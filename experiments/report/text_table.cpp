// SPDX-License-Identifier: Apache-2.0
// text_table.cpp: a table of anything as Markdown, CSV or JSON, and the mean of repeated
// measurements.
#include "experiments/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/io/json_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Cell = TableCell;

std::string markdown_cell(const Cell& cell, int digits) {
  if (const auto* text = std::get_if<std::string>(&cell)) {
    std::string out;
    for (char c : *text) {
      if (c == '|') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  }
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&cell)) {
    return digits == 0 ? fmt::format("{:.2f}", *number) : fmt::format("{:.{}g}", *number, digits);
  }
  return "-";
}

std::string csv_cell(const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&cell)) return fmt::format("{:.9g}", *number);
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr) return "";
  if (text->find_first_of(",\"\n\r") == std::string::npos) return *text;
  std::string out = "\"";
  for (char c : *text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

// Characters of UTF-8 text: bytes that do not continue one.
std::size_t shown_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

std::string to_markdown(const TextTable& table) {
  std::vector<std::vector<std::string>> lines(table.rows.size());
  std::vector<std::string> names;
  std::vector<std::size_t> widths;
  for (std::size_t k = 0; k < table.columns.size(); ++k) {
    names.push_back(table.columns[k].name);
    std::size_t width = std::max<std::size_t>(3, names[k].size());
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      lines[i].push_back(markdown_cell(table.rows[i][k], table.columns[k].digits));
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

std::string to_csv(const TextTable& table) {
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

std::string to_json(const TextTable& table) {
  using json = nlohmann::ordered_json;
  json out = json::array();
  for (const std::vector<Cell>& row : table.rows) {
    json object = json::object();
    for (std::size_t k = 0; k < row.size(); ++k) {
      std::visit(
          [&](const auto& value) {
            if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
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

MeanStd mean_std(const std::vector<double>& values) {
  MeanStd out{.count = static_cast<std::int64_t>(values.size())};
  if (values.empty()) return out;
  // Around the first value, so that equal values deviate by exactly 0.
  for (double value : values) out.mean += value - values[0];
  out.mean = values[0] + out.mean / static_cast<double>(values.size());
  if (values.size() < 2) return out;
  double squares = 0;
  for (double value : values) squares += (value - out.mean) * (value - out.mean);
  out.std = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return out;
}

std::string mean_std_text(const MeanStd& value) {
  if (value.count == 0) return "-";
  if (value.count == 1) return fmt::format("{:.4g}", value.mean);
  const double size = std::abs(value.mean);
  const int before =
      size > 0 && std::isfinite(size) ? static_cast<int>(std::floor(std::log10(size))) : 0;
  const int decimals = std::clamp(3 - before, 0, 12);
  return fmt::format("{:.{}f} ± {:.{}f}", value.mean, decimals, value.std, decimals);
}

}  // namespace convscope
