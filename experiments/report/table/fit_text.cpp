// SPDX-License-Identifier: Apache-2.0
// fit_text.cpp: wraps text for people to a screen.
#include "experiments/report/table/fit_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "experiments/report/text_table.h"
#include "framework/number_text.h"

namespace convscope {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::size_t kLeastWidth = 40;  // a narrower screen wraps the lines itself

using Lines = std::vector<std::string>;

Lines lines_of(std::string_view text) {
  Lines out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// Returns the words of a text. Words longer than `room` are split after commas.
Lines words_of(std::string_view text, std::size_t room) {
  Lines out;
  for (std::size_t begin = text.find_first_not_of(' '); begin != kNone;) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    begin = text.find_first_not_of(' ', end);
    while (shown_width(std::string(word)) > room) {
      const std::size_t comma = word.substr(0, room).find_last_of(",;|");
      if (comma == kNone || comma + 1 == word.size()) break;
      out.push_back(std::string(word.substr(0, comma + 1)) + '\b');  // continues without a blank
      word.remove_prefix(comma + 1);
    }
    out.emplace_back(word);
  }
  return out;
}

// Returns the start of the second column of a line such as "  name   what it means". For a line
// with one column, returns its indentation plus two.
std::size_t hanging_column(const std::string& line, std::size_t width) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find("  ", indent);
  const std::size_t column = gap == kNone ? kNone : line.find_first_not_of(' ', gap);
  return column != kNone && column <= width / 2 ? column : indent + 2;
}

// Returns whether a line of a table is only a rule.
bool is_rule(const std::string& line) {
  return line.find('-') != kNone && line.find_first_not_of("- ") == kNone;
}

std::string wrapped(const std::string& line, std::size_t width) {
  if (shown_width(line) <= width) return line + "\n";
  if (is_rule(line)) return line.substr(0, width) + "\n";
  const std::size_t column = hanging_column(line, width);
  // Blanks before the second column are kept, because they align the columns.
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const bool has_column =
      column > indent + 2 || line.substr(indent, column - indent).ends_with("  ");
  const std::size_t begin = has_column ? column : indent;
  return hanging_text(line.substr(0, begin), std::string_view(line).substr(begin), column, width);
}

// Splits the lines of a table with bars, "| a | b |", into cells. Each bar begins a column.
std::vector<Lines> cells_of_bars(const Lines& block) {
  std::vector<Lines> out;
  for (const std::string& line : block) {
    Lines cells;
    for (std::size_t begin = 1; begin < line.size();) {
      std::size_t end = line.find('|', begin);
      while (end != kNone && line[end - 1] == '\\') end = line.find('|', end + 1);
      if (end == kNone) break;
      cells.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    out.push_back(std::move(cells));
  }
  return out;
}

// Splits a text into columns that at least two blanks separate in every line. Returns one column if
// there are no such blanks.
std::vector<Lines> cells_of_blanks(const Lines& block) {
  std::size_t longest = 0;
  for (const std::string& line : block) longest = std::max(longest, line.size());
  std::vector<bool> blank(longest + 2, true);
  for (const std::string& line : block) {
    for (std::size_t i = 0; i < line.size() && !is_rule(line); ++i) {
      if (line[i] != ' ') blank[i] = false;
    }
  }
  std::vector<std::size_t> starts = {0};
  std::size_t indent = 0;
  while (indent < longest && blank[indent]) ++indent;
  for (std::size_t i = indent + 2; i < longest; ++i) {
    if (!blank[i] && blank[i - 1] && blank[i - 2]) starts.push_back(i - 2);
  }
  std::vector<Lines> out;
  for (const std::string& line : block) {
    Lines cells;
    for (std::size_t k = 0; k < starts.size(); ++k) {
      const std::size_t end = k + 1 < starts.size() ? starts[k + 1] : longest;
      const std::size_t from = std::min(starts[k], line.size());
      std::string cell = line.substr(from, std::min(end, line.size()) - from);
      cell.resize(end - starts[k], ' ');
      cells.push_back(std::move(cell));
    }
    out.push_back(std::move(cells));
  }
  return out;
}

// Wraps the cells of a table with bars that is too wide for a line.
std::vector<Lines> with_broken_cells(const std::vector<Lines>& rows, std::size_t width) {
  const std::size_t count = rows.front().size();
  std::vector<std::size_t> widths(count, 0);
  for (const Lines& cells : rows) {
    if (cells.size() != count) return rows;
    for (std::size_t k = 0; k < count; ++k) widths[k] = std::max(widths[k], shown_width(cells[k]));
  }
  if (count < 2 || widths[0] > width / 2) return rows;
  const std::size_t room = width - widths[0] - 3;  // width without the first column and three bars
  std::vector<Lines> out;
  for (const Lines& cells : rows) {
    std::vector<Lines> parts(count);
    std::size_t height = 1;
    for (std::size_t k = 0; k < count; ++k) {
      const bool fits = widths[k] <= room, rule = is_rule(cells[k]);
      parts[k] = fits   ? Lines{cells[k]}
                 : rule ? Lines{" " + std::string(room - 2, '-') + " "}
                        : lines_of(hanging_text(" ", cells[k], 1, room - 1));
      height = std::max(height, parts[k].size());
    }
    for (std::size_t i = 0; i < height; ++i) {
      Lines row;
      for (std::size_t k = 0; k < count; ++k) {
        std::string cell = i < parts[k].size() ? parts[k][i] : "";
        const std::size_t wide = std::min(widths[k], room), shown = shown_width(cell);
        row.push_back(cell + std::string(shown < wide ? wide - shown : 0, ' '));
      }
      out.push_back(std::move(row));
    }
  }
  return out;
}

// Splits a wide table into several tables below each other, each with the first column. Returns ""
// if these tables do not fit either.
std::string split_table(const std::vector<Lines>& rows, std::size_t width, bool bars) {
  const std::size_t count = rows.front().size();
  const auto same = [&](const Lines& cells) { return cells.size() == count; };
  if (count < (bars ? 2u : 3u) || !std::ranges::all_of(rows, same)) return "";
  const std::size_t bar = bars ? 1 : 0;
  std::vector<std::size_t> widths;
  for (std::size_t k = 0; k < count; ++k) {
    std::size_t most = 0;
    for (const Lines& cells : rows) most = std::max(most, shown_width(cells[k]));
    widths.push_back(most + bar);
  }
  const std::size_t first = widths[0] + bar;
  std::string out;
  for (std::size_t begin = 1; begin < count;) {
    std::size_t end = begin, used = first;
    while (end < count && used + widths[end] <= width) used += widths[end++];
    if (end == begin) return "";
    if (!out.empty()) out += "\n";
    for (const Lines& cells : rows) {
      const auto blank = [](const std::string& cell) {
        return cell.find_first_not_of(' ') == kNone;
      };
      const auto from = cells.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto to = cells.begin() + static_cast<std::ptrdiff_t>(end);
      if (blank(cells[0]) && std::all_of(from, to, blank)) continue;  // a cell elsewhere continues
      std::string line = bars ? "|" : "";
      for (std::size_t k = 0; k < count; ++k) {
        if (k == 0 || (k >= begin && k < end)) line += cells[k] + (bars ? "|" : "");
      }
      if (!bars) line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    begin = end;
  }
  return out;
}

std::string fitted_block(const Lines& block, std::size_t width) {
  const auto too_wide = [&](const std::string& line) { return shown_width(line) > width; };
  std::string out;
  if (block.size() > 1 && std::ranges::any_of(block, too_wide)) {
    const bool bars = block.front().starts_with('|');
    out =
        split_table(bars ? with_broken_cells(cells_of_bars(block), width) : cells_of_blanks(block),
                    width, bars);
    if (!out.empty()) return out;
  }
  for (const std::string& line : block) out += wrapped(line, width);
  return out;
}

// Returns whether `line` continues the table of the line before it. A table ends where the bars or
// the indentation change. A mark before a row, such as `*` for the choice of `auto`, counts as
// indentation.
bool goes_on(const std::string& before, const std::string& line) {
  if (before.empty() || line.empty()) return false;
  return before.starts_with('|') == line.starts_with('|') &&
         before.find_first_not_of(" *+!") == line.find_first_not_of(" *+!");
}

}  // namespace

std::size_t screen_width(int descriptor) {
  winsize size{};
  const bool terminal = isatty(descriptor) == 1 && ioctl(descriptor, TIOCGWINSZ, &size) == 0;
  if (terminal && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  return columns == nullptr ? 0 : parse_number<std::uint16_t>(columns).value_or(0);
}

std::string hanging_text(std::string first, std::string_view paragraph, std::size_t column,
                         std::size_t width) {
  std::string out, line = std::move(first);
  for (;;) {
    const std::size_t end = std::min(paragraph.find('\n'), paragraph.size());
    std::size_t indent = 0;
    if (!out.empty()) {
      indent = std::min(paragraph.find_first_not_of(' '), end);
      line = std::string(column + indent, ' ');
    }
    bool begins = true;
    for (std::string& word :
         words_of(paragraph.substr(0, end), width > column ? width - column : 1)) {
      const bool goes_on = word.ends_with('\b');
      if (goes_on) word.pop_back();
      if (!begins && shown_width(line) + shown_width(word) > width) {
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        line = std::string(column + indent, ' ');
      }
      line += word + (goes_on ? "" : " ");
      begins = false;
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    if (end == paragraph.size()) return out;
    paragraph.remove_prefix(end + 1);
  }
}

std::string fit_text(std::string_view text, std::size_t width) {
  if (width == 0) return std::string(text);
  width = std::max(width, kLeastWidth);
  std::string out;
  Lines block;
  for (std::string& line : lines_of(text)) {
    if (!block.empty() && !goes_on(block.back(), line)) {
      out += fitted_block(block, width);
      block.clear();
    }
    block.push_back(std::move(line));
  }
  if (!block.empty()) out += fitted_block(block, width);
  if (!text.ends_with('\n') && !out.empty()) out.pop_back();
  return out;
}

}  // namespace convscope
