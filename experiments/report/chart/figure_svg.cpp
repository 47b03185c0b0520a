// SPDX-License-Identifier: Apache-2.0
// figure_svg.cpp: the page of a figure: title, grid of panels, legend, notes.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "experiments/report/chart/panel.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

constexpr double kMargin = 14, kGap = 18;
constexpr double kLegendLine = 18, kNoteLine = 15;
constexpr double kSign = 34;  // width of an entry's line or mark, with the space behind

// The legend's entries in lines of the page's width: which one starts each line.
std::vector<std::vector<const LegendEntry*>> legend_lines(const std::vector<LegendEntry>& entries) {
  const double room = kFigureWidth - 2 * kMargin;
  std::vector<std::vector<const LegendEntry*>> lines;
  double used = room + 1;
  for (const LegendEntry& entry : entries) {
    const double width = legend_entry_width(entry, room) + kGap;
    if (used + width > room + kGap) {
      lines.emplace_back();
      used = 0;
    }
    lines.back().push_back(&entry);
    used += width;
  }
  return lines;
}

// The signs behind "1" and "10" stand below each other.
double tag_width(const LegendEntry& entry) {
  return entry.tag.empty() ? 0 : std::max(text_width(entry.tag, kLetter), 16.0) + 6;
}

std::string data_text(const std::vector<std::vector<std::string>>& data) {
  std::string out;
  for (const auto& row : data) {
    for (std::size_t i = 0; i < row.size(); ++i) out += (i == 0 ? "" : "\t") + row[i];
    out += "\n";
  }
  return out;
}

}  // namespace

void draw_text(std::string& svg, const std::string& text, double x, double y, double width,
               const char* attributes, double font_size) {
  const std::string shown = elide(text, font_size, width);
  fmt::format_to(std::back_inserter(svg), "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}{}</text>\n", x, y,
                 attributes, shown == text ? "" : "<title>" + escape_markup(text) + "</title>",
                 escape_markup(shown));
}

double legend_entry_width(const LegendEntry& entry, double most) {
  const double tag = tag_width(entry);
  return std::min(most, tag + kSign + text_width(entry.name, kLetter));
}

void draw_legend_entry(std::string& svg, const LegendEntry& entry, double x, double y,
                       double most) {
  auto out = std::back_inserter(svg);
  const double end = x + most;
  if (!entry.tag.empty()) {
    draw_text(svg, entry.tag, x, y, most, "font-weight=\"bold\"");
    x += tag_width(entry);
  }
  const double middle = y - 4;
  const char* color = style_color(entry.style);
  using Form = LegendEntry::Form;
  if (entry.form == Form::line || entry.form == Form::plain_line) {
    fmt::format_to(out,
                   "<path d=\"M{:.1f} {:.1f}h26\" stroke=\"{}\" stroke-width=\"1.8\" "
                   "stroke-dasharray=\"{}\"/>",
                   x, middle, color, style_dashes(entry.style));
  }
  if (entry.form == Form::bar) {
    const BarLook look = bar_look(static_cast<std::size_t>(entry.style));
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"22\" height=\"9\" fill=\"{}\" "
                   "stroke=\"{}\"/>",
                   x, middle - 4.5, look.fill, look.outline);
  } else if (entry.form != Form::plain_line) {
    svg += style_mark(entry.style, x + 13, middle, 3.6, entry.form == Form::hollow_mark, "");
  }
  draw_text(svg, entry.name, x + kSign - 4, y, end - x - kSign + 4.5);
}

double height_of(const LegendPanel& panel) {
  return 30 + kLegendLine * static_cast<double>(panel.entries.size());
}

void draw(std::string& svg, const LegendPanel& panel, const Cell& cell) {
  draw_text(svg, panel.title, cell.x + 14, cell.y + 16, cell.width, "font-weight=\"bold\"", 12);
  double y = cell.y + 38;
  for (const LegendEntry& entry : panel.entries) {
    draw_legend_entry(svg, entry, cell.x + 14, y, cell.width - 14);
    y += kLegendLine;
  }
}

std::string to_svg(const Figure& figure) {
  const auto columns = static_cast<std::size_t>(std::max(1, figure.columns));
  const double grid_width = kFigureWidth - 2 * kMargin;
  const double cell_width =
      (grid_width - kGap * static_cast<double>(columns - 1)) / static_cast<double>(columns);

  std::string body;
  double y = figure.subtitle.empty() ? 36 : 54;
  for (std::size_t first = 0; first < figure.panels.size(); first += columns) {
    const std::size_t end = std::min(first + columns, figure.panels.size());
    double height = 0;
    for (std::size_t i = first; i < end; ++i) {
      height = std::max(height,
                        std::visit([](const auto& p) { return height_of(p); }, figure.panels[i]));
    }
    for (std::size_t i = first; i < end; ++i) {
      const Cell cell{.x = kMargin + static_cast<double>(i - first) * (cell_width + kGap),
                      .y = y,
                      .width = cell_width,
                      .height = height};
      std::visit([&](const auto& panel) { draw(body, panel, cell); }, figure.panels[i]);
    }
    y += height + 8;
  }
  for (const auto& line : legend_lines(figure.legend)) {
    double x = kMargin;
    y += kLegendLine;
    for (const LegendEntry* entry : line) {
      const double width = legend_entry_width(*entry, grid_width);
      draw_legend_entry(body, *entry, x, y, width);
      x += width + kGap;
    }
  }
  if (!figure.notes.empty()) y += 6;
  for (const std::string& note : figure.notes) {
    y += kNoteLine;
    draw_text(body, note, kMargin, y, grid_width, "fill=\"#555\"");
  }
  const int height = static_cast<int>(y) + 14;

  const std::string title = escape_markup(figure.title);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\" font-family=\"Helvetica, Arial, "
      "sans-serif\" font-size=\"{3}\" fill=\"#222\">\n<title>{2}</title>\n",
      kFigureWidth, height, title, kLetter);
  if (!figure.data.empty()) svg += "<desc>" + escape_markup(data_text(figure.data)) + "</desc>\n";
  svg += fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", kFigureWidth, height);
  draw_text(svg, figure.title, kMargin, 22, grid_width, "font-size=\"15\" font-weight=\"bold\"",
            15);
  if (!figure.subtitle.empty()) {
    draw_text(svg, figure.subtitle, kMargin, 40, grid_width, "fill=\"#555\"");
  }
  return svg + body + "</svg>\n";
}

}  // namespace convscope
