// SPDX-License-Identifier: Apache-2.0
// markup.cpp: HTML parts of pages: tables, lists, facts, and numbers with units.
#include "experiments/report/html/markup.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>
#include <optional>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/csv_table.h"
#include "experiments/run_folder/run_file.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

bool is_measured(double value) { return std::isfinite(value) && value > 0; }

// Returns three significant digits without an exponent: "1.40", "152".
std::string three_digits(double value) {
  const int before = value > 0 ? static_cast<int>(std::floor(std::log10(value))) : 0;
  return fmt::format("{:.{}f}", value, before >= 2 ? 0 : before >= 0 ? 2 - before : 3);
}

bool is_column_of_numbers(const HtmlTable& table, std::size_t column) {
  bool any = false;
  for (std::size_t row = 1; row < table.size(); ++row) {
    const std::string& cell = table[row][column];
    if (cell.empty() || cell == "-") continue;
    if (!std::isfinite(number_in(cell))) return false;
    any = true;
  }
  return any;
}

}  // namespace

std::string file_text(const std::string& path) {
  return text_if_there(path, most_bytes_of_run_file(path)).value_or("");
}

std::string html_table(const HtmlTable& table) {
  if (table.empty()) return "";
  std::vector<bool> is_number;
  for (std::size_t i = 0; i < table[0].size(); ++i) {
    is_number.push_back(i > 0 && is_column_of_numbers(table, i));
  }
  std::string out = std::string(kTableBox) + "<table>\n<thead><tr>";
  for (std::size_t i = 0; i < table[0].size(); ++i) {
    const std::string unit = unit_of(table[0][i]);
    out +=
        fmt::format("<th scope=\"col\"{}>{}{}</th>", is_number[i] ? " class=\"n\"" : "",
                    escape_markup(table[0][i]), unit.empty() ? "" : "<small>" + unit + "</small>");
  }
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t row = 1; row < table.size(); ++row) {
    out += "<tr>";
    for (std::size_t i = 0; i < table[row].size(); ++i) {
      const bool number = i < is_number.size() && is_number[i];
      out +=
          fmt::format("<td{}>{}</td>", number ? " class=\"n\"" : "", escape_markup(table[row][i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_list(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& sentence : sentences) {
    out += "<li>" + escape_markup(sentence) + "</li>\n";
  }
  return out.empty() ? "" : "<ul>\n" + out + "</ul>\n";
}

std::string html_facts(const std::vector<Fact>& facts) {
  std::string out;
  for (const Fact& fact : facts) {
    if (fact.value.empty()) continue;
    out += fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", escape_markup(fact.name),
                       escape_markup(fact.value),
                       fact.more.empty() ? "" : "<small>" + escape_markup(fact.more) + "</small>");
  }
  return out.empty() ? "" : "<dl class=\"facts\">\n" + out + "</dl>\n";
}

std::string seconds_text(double seconds) {
  if (!is_measured(seconds)) return "";
  if (seconds >= 60) {
    const auto total = static_cast<long long>(std::llround(seconds));
    return total >= 3600 ? fmt::format("{} h {:02} min", total / 3600, total / 60 % 60)
                         : fmt::format("{} min {:02} s", total / 60, total % 60);
  }
  if (seconds >= 1) return three_digits(seconds) + " s";
  if (seconds >= 1e-3) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds * 1e6) + " \xC2\xB5s";
}

std::string mib_text(double mib) { return is_measured(mib) ? three_digits(mib) + " MiB" : ""; }

std::string percent_text(const std::optional<double>& percent) {
  return percent && std::isfinite(*percent) ? fmt::format("{:.2f} %", *percent) : "";
}

std::string count_text(double count) {
  if (!is_measured(count)) return "";
  std::string digits = fmt::format("{:.0f}", count);
  // U+202F, a narrow no-break space, separates groups of three digits.
  for (std::size_t at = digits.size(); at > 3 && digits.size() > 4;) {
    at -= 3;
    digits.insert(at, "\xE2\x80\xAF");
  }
  return digits;
}

std::string unit_of(const std::string& column) {
  static const std::map<std::string, std::string> units = {{"avg_forward", "s"},
                                                           {"avg_backward", "s"},
                                                           {"avg_update", "s"},
                                                           {"avg_wait", "s"},
                                                           {"avg_step", "s"},
                                                           {"avg_inference", "s"},
                                                           {"weight_bytes", "bytes"},
                                                           {"seconds", "s"},
                                                           {"avg_forward_mem", "MiB"},
                                                           {"avg_backward_mem", "MiB"},
                                                           {"peak_workspace", "MiB"},
                                                           {"kept_mib", "MiB"},
                                                           {"acc", "%"},
                                                           {"best_acc", "%"},
                                                           {"val_acc", "%"},
                                                           {"test_acc", "%"},
                                                           {"test_top5", "%"},
                                                           {"test_iou", "%"},
                                                           {"train_acc", "%"},
                                                           {"images_per_s", "images/s"},
                                                           {"forward_ms", "ms"},
                                                           {"backward_ms", "ms"}};
  const auto unit = units.find(column);
  return unit == units.end() ? "" : unit->second;
}

}  // namespace convscope
