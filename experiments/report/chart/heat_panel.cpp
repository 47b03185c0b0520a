// SPDX-License-Identifier: Apache-2.0
// heat_panel.cpp: a table of shaded cells with the number in each: names of the columns stand
// slanted above, so that long ones need no width.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "experiments/report/chart/panel.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr double kRow = 19, kWidest = 84, kText = 10;
constexpr double kSlope = 0.5;  // sine of the columns' 30 degrees

double names_height(const HeatPanel& panel) {
  double widest = 0;
  for (const std::string& name : panel.columns) {
    widest = std::max(widest, text_width(name, kLetter));
  }
  return std::min(widest, 180.0) * kSlope + (panel.column_styles.empty() ? 12 : 24);
}

// From white over light blue to a dark one: darker with each step, so that grey prints read it too.
std::string color_of(double shade) {
  constexpr double kStops[][3] = {{255, 255, 255}, {158, 196, 226}, {8, 63, 122}};
  const double at = std::clamp(shade, 0.0, 1.0) * 2;
  const auto from = static_cast<std::size_t>(at >= 1 ? 1 : 0);
  const double part = at - static_cast<double>(from);
  int rgb[3];
  for (std::size_t i = 0; i < 3; ++i) {
    rgb[i] = static_cast<int>(
        std::lround(kStops[from][i] + part * (kStops[from + 1][i] - kStops[from][i])));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

}  // namespace

double height_of(const HeatPanel& panel, double) {
  return names_height(panel) + kRow * static_cast<double>(panel.rows.size()) + 12;
}

void draw(std::string& svg, const HeatPanel& panel, const Cell& cell) {
  double names = 0;
  for (const std::string& name : panel.rows) names = std::max(names, text_width(name, kLetter));
  names = std::min(names, cell.width * (panel.columns.size() < 12 ? 0.42 : 0.35));
  const double left = cell.x + names + 10;
  const double top = cell.y + cell.title_height + names_height(panel);
  // The last column's name reaches to the right of it.
  const double last = panel.columns.empty() ? 0 : text_width(panel.columns.back(), kLetter);
  const double room = cell.x + cell.width - left - std::min(last, 180.0) * 0.87;
  const double width =
      std::min(kWidest, room / static_cast<double>(std::max<std::size_t>(1, panel.columns.size())));
  const auto column_x = [&](std::size_t c) { return left + width * static_cast<double>(c); };

  auto out = std::back_inserter(svg);
  draw_title(svg, panel.title, cell.x, cell);
  for (std::size_t c = 0; c < panel.columns.size(); ++c) {
    const double x = column_x(c) + width / 2;
    const double foot = top - (panel.column_styles.empty() ? 6 : 18);
    if (c < panel.column_styles.size() && panel.column_styles[c] >= 0) {
      svg += style_mark(panel.column_styles[c], x, top - 9, 4, false, panel.columns[c]) + "\n";
    }
    draw_text(svg, panel.columns[c], x, foot, 180,
              fmt::format("transform=\"rotate(-30 {:.1f} {:.1f})\"", x, foot).c_str());
  }
  const bool small = width < 32;
  std::string frames;  // above all cells, or the next one would cover an edge
  for (std::size_t r = 0; r < panel.rows.size(); ++r) {
    const double y = top + kRow * static_cast<double>(r);
    draw_text(svg, panel.rows[r], left - 6, y + kRow / 2 + 4, names + 1, "text-anchor=\"end\"");
    for (std::size_t c = 0; c < panel.columns.size(); ++c) {
      const HeatCell& one = panel.cells[r][c];
      const bool value = std::isfinite(one.shade);
      fmt::format_to(out, "<g><title>{}</title>", escape_markup(one.title));
      fmt::format_to(out,
                     "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                     "fill=\"{}\" stroke=\"#c4c4c4\"/>",
                     column_x(c), y, width, kRow, value ? color_of(one.shade) : "#f6f6f6");
      const bool light = value && one.shade > 0.62;
      // A word that does not fit is its first letter.
      const bool fits = value || text_width(one.text, 9) <= width;
      draw_text(svg, fits ? one.text : one.text.substr(0, 1), column_x(c) + width / 2,
                y + kRow / 2 + 3.5, 2 * width,
                !value  ? "text-anchor=\"middle\" font-size=\"9\" font-style=\"italic\" "
                          "fill=\"#666\""
                : light ? (small ? "text-anchor=\"middle\" font-size=\"8\" fill=\"#fff\""
                                 : "text-anchor=\"middle\" font-size=\"10\" fill=\"#fff\"")
                        : (small ? "text-anchor=\"middle\" font-size=\"8\""
                                 : "text-anchor=\"middle\" font-size=\"10\""),
                small   ? 8
                : value ? kText
                        : 9);
      svg += "</g>\n";
      if (one.framed) {
        // White within black: seen on dark cells and on light ones.
        for (const char* stroke : {"#000\" stroke-width=\"3.4", "#fff\" stroke-width=\"1"}) {
          fmt::format_to(std::back_inserter(frames),
                         "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                         "fill=\"none\" pointer-events=\"none\" stroke=\"{}\"/>\n",
                         column_x(c) + 1.5, y + 1.5, width - 3, kRow - 3, stroke);
        }
      }
    }
  }
  svg += frames;
}

}  // namespace convscope
