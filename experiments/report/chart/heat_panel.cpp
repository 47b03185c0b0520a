// SPDX-License-Identifier: Apache-2.0
// heat_panel.cpp: draws a table of shaded cells with numbers. The names of the columns are above
// the table, slanted so that a long name does not widen its column. If the cells are too narrow for
// slanted names, the names are vertical.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "experiments/report/chart/panel.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr double kRow = 19, kWidest = 84;
constexpr double kSlope = 0.5;        // sine of the columns' 30 degrees
constexpr double kLeastSlanted = 25;  // cell width from which slanted names do not overlap
constexpr double kLeastUpright = 15;  // the same for vertical names
constexpr double kLongestName = 180;
constexpr double kScaleBar = 10, kScale = kScaleBar + 36;  // heights
constexpr double kNoteLine = 15;
constexpr std::size_t kNoteLines = 12;

struct Layout {
  double left = 0, cell = 0;    // distance from the panel's left edge to the first cell; cell width
  double head = 0, row = kRow;  // heights of the columns' names and of a row
  std::size_t per_block = 1, blocks = 1;
  bool upright = false;
  std::vector<std::vector<std::string>> rows;  // the names, in lines

  double block(std::size_t count) const { return head + row * static_cast<double>(count) + 8; }
};

// Shortens a word that does not fit to its first letter. Numbers are never shortened.
double needed_width(const HeatPanel& panel) {
  double widest = 0;
  for (const auto& row : panel.cells) {
    for (const HeatCell& cell : row) {
      if (std::isfinite(cell.shade)) widest = std::max(widest, text_width(cell.text, kLetter));
    }
  }
  return widest + 4;
}

Layout layout_of(const HeatPanel& panel, double width) {
  Layout out;
  const auto columns = static_cast<double>(std::max<std::size_t>(1, panel.columns.size()));
  double names = 0, heads = 0;
  for (const std::string& name : panel.rows) names = std::max(names, text_width(name, kLetter));
  for (const std::string& name : panel.columns) heads = std::max(heads, text_width(name, kLetter));
  heads = std::min(heads, kLongestName);
  const double marks = panel.column_styles.empty() ? 12 : 24;
  const double most = width * (panel.columns.size() < 12 ? 0.42 : 0.35);
  std::size_t lines = 1;
  const auto wrap_rows = [&](double room) {
    for (const std::string& name : panel.rows) {
      out.rows.push_back(wrap_text(name, kLetter, room, 2));
      lines = std::max(lines, out.rows.back().size());
    }
  };
  // The name of the last column extends beyond the column to the right.
  const double last = panel.columns.empty() ? 0 : text_width(panel.columns.back(), kLetter);
  const double least = needed_width(panel);
  out.left = std::min(names, most) + 10;
  out.per_block = panel.columns.size();
  out.head = heads * kSlope + marks;
  out.cell = (width - out.left - std::min(last, kLongestName) * 0.87) / columns;
  if (out.cell < std::max(panel.one_table ? 0 : least, kLeastSlanted)) {
    names = std::min(names, 0.3 * width);
    out.upright = true;
    out.left = names + 10;
    out.head = heads + marks;
    out.cell = (width - out.left - 2) / columns;
    if (!panel.one_table && out.cell < least) {
      const double fit =
          std::max(1.0, std::floor((width - out.left - 2) / std::max(least, kLeastUpright)));
      out.blocks = static_cast<std::size_t>(std::ceil(columns / fit));
      out.per_block = (panel.columns.size() + out.blocks - 1) / out.blocks;
      out.cell = (width - out.left - 2) / static_cast<double>(out.per_block);
    }
  }
  out.cell = std::min(kWidest, out.cell);
  wrap_rows(out.left - 9);
  if (lines > 1) out.row = kRow + kNameLine;
  return out;
}

std::vector<std::string> note_lines(const HeatPanel& panel, double width) {
  return wrap_text(panel.note, kLetter, width, kNoteLines);
}

// Returns a colour from white over light blue to dark blue. A larger shade is also darker when
// printed in grey. Negative shades go from white over orange to brown.
std::string color_of(double shade) {
  constexpr double kBlue[][3] = {{255, 255, 255}, {158, 196, 226}, {8, 63, 122}};
  constexpr double kBrown[][3] = {{255, 255, 255}, {247, 184, 120}, {127, 59, 8}};
  const auto& kStops = shade < 0 ? kBrown : kBlue;
  const double at = std::min(std::abs(shade), 1.0) * 2;
  const auto from = static_cast<std::size_t>(at >= 1 ? 1 : 0);
  const double part = at - static_cast<double>(from);
  int rgb[3];
  for (std::size_t i = 0; i < 3; ++i) {
    rgb[i] = static_cast<int>(
        std::lround(kStops[from][i] + part * (kStops[from + 1][i] - kStops[from][i])));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

// Draws a bar of the shades, with the meanings of some shades below the bar.
void draw_scale(std::string& svg, const HeatPanel& panel, double x, double y, double width) {
  const auto& scale = panel.scale;
  const double low = scale.front().first, high = scale.back().first;
  constexpr int kSlices = 40;
  auto out = std::back_inserter(svg);
  svg += "<g shape-rendering=\"crispEdges\">";
  for (int i = 0; i < kSlices; ++i) {
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>",
                   x + width * i / kSlices, y, width / kSlices, kScaleBar,
                   color_of(low + (high - low) * (i + 0.5) / kSlices));
  }
  fmt::format_to(
      out,
      "</g>\n<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"none\" "
      "stroke=\"#777\"/>\n",
      x, y, width, kScaleBar);
  for (const auto& [shade, text] : scale) {
    const double at = x + width * (shade - low) / (high - low);
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}v3\" stroke=\"#222\"/>", at, y + kScaleBar);
    draw_text(svg, text, at, y + kScaleBar + 14, width, "text-anchor=\"middle\"");
  }
  draw_text(svg, panel.scale_label, x, y + kScaleBar + 28, width * 2);
}

// Draws the column names from `first` to `end`: slanted, or vertical where cells are narrow.
void draw_heads(std::string& svg, const HeatPanel& panel, const Layout& layout, std::size_t first,
                std::size_t end, double x, double top) {
  // If names would overlap, only every second or third name is shown.
  const double least = layout.upright ? kLeastUpright - 1.5 : kLeastSlanted - 1;
  const auto stride = static_cast<std::size_t>(std::max(1.0, std::ceil(least / layout.cell)));
  for (std::size_t c = first; c < end; ++c) {
    const double middle = x + layout.cell * (static_cast<double>(c - first) + 0.5);
    const double foot = top - (panel.column_styles.empty() ? 6 : 18);
    if (c < panel.column_styles.size() && panel.column_styles[c] >= 0) {
      svg += style_mark(panel.column_styles[c], middle, top - 9, 4, false, panel.columns[c]) + "\n";
    }
    if ((c - first) % stride != 0) continue;
    const double at = layout.upright ? middle + 4 : middle;
    draw_text(
        svg, panel.columns[c], at, foot, kLongestName,
        fmt::format("transform=\"rotate({} {:.1f} {:.1f})\"", layout.upright ? -90 : -30, at, foot)
            .c_str());
  }
}

void draw_row_name(std::string& svg, const std::string& name, const std::vector<std::string>& lines,
                   double x, double middle) {
  double y = middle + 4 - kNameLine / 2 * static_cast<double>(lines.size() - 1);
  for (const std::string& line : lines) {
    const bool cut = line.find("\xE2\x80\xA6") != std::string::npos && line != name;
    fmt::format_to(std::back_inserter(svg),
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}{}</text>\n", x, y,
                   cut ? "<title>" + escape_markup(name) + "</title>" : "", escape_markup(line));
    y += kNameLine;
  }
}

void draw_cell(std::string& svg, const HeatCell& cell, double x, double y, double width,
               double row) {
  const bool value = std::isfinite(cell.shade);
  fmt::format_to(std::back_inserter(svg),
                 "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
                 "height=\"{:.1f}\" fill=\"{}\" stroke=\"#c4c4c4\"/>",
                 escape_markup(cell.title), x, y, width, row,
                 value ? color_of(cell.shade) : "#f6f6f6");
  std::string text = cell.text;
  if (text_width(text, kLetter) > width - 1) text = value ? "" : text.substr(0, 1);
  if (text_width(text, kLetter) <= width) {
    draw_text(svg, text, x + width / 2, y + row / 2 + 4, width + 1,
              !value ? "text-anchor=\"middle\" font-style=\"italic\" fill=\"#666\""
              : std::abs(cell.shade) > 0.62 ? "text-anchor=\"middle\" fill=\"#fff\""
                                            : "text-anchor=\"middle\"");
  }
  svg += "</g>\n";
}

}  // namespace

double height_of(const HeatPanel& panel, double width) {
  const Layout layout = layout_of(panel, width);
  return layout.block(panel.rows.size()) * static_cast<double>(layout.blocks) + 4 +
         (panel.scale.size() < 2 ? 0 : kScale) +
         kNoteLine * static_cast<double>(note_lines(panel, width).size());
}

void draw(std::string& svg, const HeatPanel& panel, const Cell& cell) {
  const Layout layout = layout_of(panel, cell.width);
  const double left = cell.x + layout.left;
  double y = cell.y + cell.title_height;
  draw_title(svg, panel.title, cell.x, cell);
  for (std::size_t block = 0; block < layout.blocks; ++block) {
    const std::size_t first = block * layout.per_block;
    const std::size_t end = std::min(first + layout.per_block, panel.columns.size());
    y += layout.head;
    draw_heads(svg, panel, layout, first, end, left, y);
    std::string frames;  // above all cells, because the next cell would cover an edge
    for (std::size_t r = 0; r < panel.rows.size(); ++r) {
      draw_row_name(svg, panel.rows[r], layout.rows[r], left - 6, y + layout.row / 2);
      for (std::size_t c = first; c < end; ++c) {
        const HeatCell& one = panel.cells[r][c];
        const double x = left + layout.cell * static_cast<double>(c - first);
        draw_cell(svg, one, x, y, layout.cell, layout.row);
        if (!one.framed) continue;
        // A white line within a black line is visible on dark and on light cells.
        for (const char* stroke : {"#000\" stroke-width=\"3.4", "#fff\" stroke-width=\"1"}) {
          fmt::format_to(std::back_inserter(frames),
                         "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                         "fill=\"none\" pointer-events=\"none\" stroke=\"{}\"/>\n",
                         x + 1.5, y + 1.5, layout.cell - 3, layout.row - 3, stroke);
        }
      }
      y += layout.row;
    }
    svg += frames;
    y += 8;
  }
  if (panel.scale.size() >= 2) {
    const double half = text_width(panel.scale.front().second, kLetter) / 2;
    draw_scale(svg, panel, cell.x + std::max(layout.left, half), y + 4,
               std::min(200.0, (cell.width - layout.left) * 0.7));
    y += kScale;
  }
  for (const std::string& line : note_lines(panel, cell.width)) {
    y += kNoteLine;
    draw_text(svg, line, cell.x, y, cell.width * 1.1, "fill=\"#555\"");
  }
}

}  // namespace convscope
