// SPDX-License-Identifier: Apache-2.0
// text_curve.cpp: a curve in characters, for a terminal.
#include "experiments/watch/text_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace convscope {
namespace {

using Points = std::vector<std::pair<double, double>>;

// A braille character is U+2800 plus one bit for each of its dots. These are the bits of the left
// column from top to bottom, then those of the right column.
constexpr unsigned kDots[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

struct Grid {
  int width, height;  // dots
  std::vector<bool> on;
  Grid(int w, int h) : width(w), height(h), on(static_cast<std::size_t>(w * h)) {}
  std::size_t at(int x, int y) const { return static_cast<std::size_t>(y * width + x); }
};

// Returns the position of `value` between low and high, 0 to 1. All values are divided by 2,
// because the difference of two finite numbers may overflow.
double share_of(double value, double low, double high) {
  const double share = (value / 2 - low / 2) / (high / 2 - low / 2);
  return std::isnan(share) ? 0.5 : std::clamp(share, 0.0, 1.0);
}

// Returns the height of the curve in each column of dots: the mean of the column's points, or, in a
// column without points, the value interpolated between its neighbours.
std::vector<double> levels_of(const Points& points, int width) {
  const double first = points.front().first, last = points.back().first;
  std::vector<double> sum(static_cast<std::size_t>(width)), count(sum.size());
  for (const auto& [x, y] : points) {
    const double share = last > first ? share_of(x, first, last) : 0;
    const auto at = static_cast<std::size_t>(share * (width - 1) + 0.5);
    sum[at] += y;
    count[at] += 1;
  }
  std::vector<double> out(sum.size());
  std::size_t before = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (count[i] == 0) continue;
    out[i] = sum[i] / count[i];
    for (std::size_t k = before + 1; k < i; ++k) {
      const double part = static_cast<double>(k - before) / static_cast<double>(i - before);
      out[k] = out[before] + part * (out[i] - out[before]);
    }
    before = i;
  }
  return out;
}

void draw(Grid& grid, const std::vector<double>& levels, double low, double high) {
  int last = -1;
  for (int x = 0; x < grid.width; ++x) {
    const double share = share_of(levels[static_cast<std::size_t>(x)], low, high);
    const int y = static_cast<int>(std::lround((1 - share) * (grid.height - 1)));
    // Steep parts are connected from dot to dot.
    const int from = last < 0 ? y : last < y ? last + 1 : last > y ? last - 1 : y;
    for (int k = std::min(from, y); k <= std::max(from, y); ++k) grid.on[grid.at(x, k)] = true;
    last = y;
  }
}

std::string braille(unsigned bits) {
  const unsigned code = 0x2800 + bits;
  return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

std::string row_of(const Grid& grid, int row, CurveInk ink) {
  std::string out;
  if (ink == CurveInk::stars) {
    for (int x = 0; x < grid.width; ++x) out += grid.on[grid.at(x, row)] ? '*' : ' ';
    return out;
  }
  for (int x = 0; x < grid.width; x += 2) {
    unsigned bits = 0;
    for (int dx = 0; dx < 2; ++dx) {
      for (int dy = 0; dy < 4; ++dy) {
        if (grid.on[grid.at(x + dx, 4 * row + dy)]) bits |= kDots[dx][dy];
      }
    }
    out += bits == 0 ? " " : braille(bits);
  }
  return out;
}

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

CurveInk ink_of_terminal() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || value[0] == '\0') continue;
    std::string text = value;
    std::ranges::transform(text, text.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const bool utf8 =
        text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
    return utf8 ? CurveInk::braille : CurveInk::stars;
  }
  return CurveInk::stars;
}

std::vector<std::string> text_curve(const Points& points, int columns, int rows, CurveInk ink) {
  Points finite;
  for (const auto& point : points) {
    if (std::isfinite(point.first) && std::isfinite(point.second)) finite.push_back(point);
  }
  if (finite.empty() || rows < 1) return {};
  // Sorts by x, because the lines of a file may have been reordered.
  std::ranges::stable_sort(finite, {}, &Points::value_type::first);
  const auto by_y = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, most] = std::minmax_element(finite.begin(), finite.end(), by_y);
  const std::string top = fmt::format("{:.4g}", most->second);
  const std::string bottom = fmt::format("{:.4g}", least->second);
  const std::size_t label = std::max(top.size(), bottom.size());
  const int cells = columns - static_cast<int>(label) - 1;
  if (cells < 4) return {};
  const bool dots = ink == CurveInk::braille;
  Grid grid(dots ? 2 * cells : cells, dots ? 4 * rows : rows);
  double low = least->second, high = most->second;
  if (!(high > low)) {  // a flat line is in the middle
    low -= 1;
    high += 1;
  }
  draw(grid, levels_of(finite, grid.width), low, high);
  std::vector<std::string> out;
  for (int row = 0; row < rows; ++row) {
    const std::string& text = row == 0 ? top : row == rows - 1 ? bottom : "";
    out.push_back(fmt::format("{:>{}} {}", text, label, row_of(grid, row, ink)));
  }
  return out;
}

std::string fit_text(const std::string& text, int columns) {
  std::string out;
  int used = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && !starts_character(text[end])) ++end;
    if (++used > columns) break;
    const auto c = static_cast<unsigned char>(text[at]);
    // Control characters U+0080 to U+009F have second bytes 0x80 to 0x9f.
    const bool c1 = c == 0xC2 && end - at == 2 && static_cast<unsigned char>(text[at + 1]) < 0xA0;
    const bool broken = !starts_character(text[at]);
    out += c < 0x20 || c == 0x7F || c1 || broken ? "?" : text.substr(at, end - at);
    at = end;
  }
  return out;
}

int columns_of(const std::string& text) {
  return static_cast<int>(std::ranges::count_if(text, starts_character));
}

}  // namespace convscope
