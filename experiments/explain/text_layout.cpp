// SPDX-License-Identifier: Apache-2.0
// text_layout.cpp: columns and paragraphs for a terminal of 100 columns.
#include "experiments/explain/text_layout.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <sstream>

namespace convscope {

std::string columns_text(const std::vector<std::vector<std::string>>& rows, std::size_t indent,
                         const std::vector<std::size_t>& right) {
  std::vector<std::size_t> widths(rows.empty() ? 0 : rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const std::size_t width =
      std::accumulate(widths.begin(), widths.end(), indent + 2 * widths.size() - 2);
  const std::string gap(width > kTextWidth ? 1 : 2, ' ');
  std::string out;
  for (const auto& row : rows) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string fill(widths[i] - row[i].size(), ' ');
      const bool at_right = std::ranges::count(right, i) > 0;
      line += (i == 0 ? "" : gap) + (at_right ? fill + row[i] : row[i] + fill);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string wrapped_text(const std::string& text, std::size_t indent, std::size_t width) {
  std::istringstream words(text);
  std::string out;
  std::string line(std::min(text.find_first_not_of(' '), text.size()), ' ');
  bool begins = true;
  for (std::string word; words >> word; begins = false) {
    if (!begins && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.assign(indent, ' ');
      begins = true;
    }
    line += (begins ? "" : " ") + word;
  }
  return out + line + "\n";
}

std::string number_text(const char* format, double value) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace convscope
