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

constexpr double kGap = 18;
constexpr double kLegendLine = 18, kNoteLine = 15;
constexpr double kIndent = 14;  // indentation of a legend in the grid
constexpr double kSign = 34;    // width of an entry's line or mark with the following space

// Returns the legend's entries in lines of the page's width.
std::vector<std::vector<const LegendEntry*>> legend_lines(const std::vector<LegendEntry>& entries,
                                                          double room) {
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

// Returns the width reserved for a tag. It is the same for "1" and "10", so that the symbols after
// the tags are aligned.
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

namespace {

std::vector<std::string> label_lines(const AxisSpec& spec, bool log, double width) {
  return wrap_text(spec.label + (log ? ", log scale" : ""), kLetter, width, 3);
}

}  // namespace

double more_label_lines(const AxisSpec& spec, double width) {
  const std::size_t lines = label_lines(spec, spec.log, width).size();
  return lines < 2 ? 0 : kNameLine * static_cast<double>(lines - 1);
}

void draw_x_label(std::string& svg, const AxisSpec& spec, bool log, double x, double y,
                  const Cell& cell) {
  for (const std::string& line : label_lines(spec, log, cell.width)) {
    const double half = std::min(text_width(line, kLetter), cell.width) / 2;
    draw_text(svg, line, std::clamp(x, cell.x + half, cell.x + cell.width - half), y,
              cell.width + 1, "text-anchor=\"middle\"");
    y += kNameLine;
  }
}

double legend_entry_width(const LegendEntry& entry, double most) {
  const double tag = tag_width(entry);
  return std::min(most, tag + kSign + text_width(entry.name, kLetter));
}

namespace {

std::vector<std::string> legend_name(const LegendEntry& entry, double most) {
  return wrap_text(entry.name, kLetter, most - tag_width(entry) - kSign + 4.5, 3);
}

// Returns how much a legend entry extends below its first line when it is wrapped to the width
// `most`.
double more_lines(const LegendEntry& entry, double most) {
  const auto lines = static_cast<double>(legend_name(entry, most).size());
  return kNameLine * std::max(0.0, lines - 1);
}

}  // namespace

double draw_legend_entry(std::string& svg, const LegendEntry& entry, double x, double y,
                         double most) {
  auto out = std::back_inserter(svg);
  const std::vector<std::string> name = legend_name(entry, most);
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
    const BarLook look = bar_look(entry.style);
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"22\" height=\"9\" fill=\"{}\" "
                   "stroke=\"{}\"/>",
                   x, middle - 4.5, look.fill, look.outline);
  } else if (entry.form != Form::plain_line) {
    svg += style_mark(entry.style, x + 13, middle, 3.6, entry.form == Form::hollow_mark, "");
  }
  for (std::size_t i = 0; i < name.size(); ++i) {
    draw_text(svg, name[i], x + kSign - 4, y + kNameLine * static_cast<double>(i),
              end - x - kSign + 4.5);
  }
  return more_lines(entry, most);
}

double height_of(const LegendPanel& panel, double width) {
  double height = 6 + kLegendLine * static_cast<double>(panel.entries.size());
  for (const LegendEntry& entry : panel.entries) height += more_lines(entry, width - kIndent);
  return height;
}

void draw(std::string& svg, const LegendPanel& panel, const Cell& cell) {
  draw_title(svg, panel.title, cell.x + kIndent, cell);
  double y = cell.y + cell.title_height + 12;
  for (const LegendEntry& entry : panel.entries) {
    y += draw_legend_entry(svg, entry, cell.x + kIndent, y, cell.width - kIndent);
    y += kLegendLine;
  }
}

std::vector<std::string> title_lines(const std::string& title, double width) {
  return wrap_text(title, 12 * kBold, width, 3);  // bold letters are wider
}

void draw_title(std::string& svg, const std::string& title, double x, const Cell& cell) {
  // A title that does not fit above the frame begins at the panel's left edge.
  constexpr double kSmall = 300;  // so that adjacent small panels look alike
  if (cell.width < kSmall || x + text_width(title, 12 * kBold) > cell.x + cell.width) x = cell.x;
  double y = cell.y + 16;
  for (const std::string& line : title_lines(title, cell.width)) {
    draw_text(svg, line, x, y, cell.width, "font-size=\"12\" font-weight=\"bold\"", 12);
    y += kTitleLine;
  }
}

namespace {

// Margins of the page's text and grids.
struct Place {
  double margin = 14, width = 0;
};

// Draws lines of text below each other; returns the last baseline.
double draw_lines(std::string& svg, const std::string& text, double y, double line,
                  const Place& place, const char* attributes, double font_size,
                  double measured_size) {
  for (const std::string& each : wrap_text(text, measured_size, place.width, 6)) {
    y += line;
    draw_text(svg, each, place.margin, y, place.width * 1.1, attributes, font_size);
  }
  return y;
}

// Draws panels row by row, then the legend; returns the y below them.
double draw_grid(std::string& svg, const Section& section, double y, const Place& place) {
  const double width = place.width;
  const auto wanted = static_cast<std::size_t>(std::max(1, section.columns));
  // A panel is at least two thirds as wide as on a page of the usual width, so that its labels fit.
  const double usual = (kFigureWidth - 2 * Place().margin) / static_cast<double>(wanted) - kGap;
  const double least = std::max(210.0, 0.66 * usual);
  const std::size_t columns = std::clamp<std::size_t>(
      static_cast<std::size_t>(std::max(1.0, (width + kGap) / (least + kGap))), 1, wanted);
  const double cell_width =
      (width - kGap * static_cast<double>(columns - 1)) / static_cast<double>(columns);
  std::vector<const AnyPanel*> panels;
  for (const AnyPanel& panel : section.panels) {
    const auto* legend = std::get_if<LegendPanel>(&panel);
    const bool filler = legend != nullptr && legend->entries.empty() && legend->title.empty();
    if (!filler || columns == wanted) panels.push_back(&panel);
  }
  for (std::size_t first = 0; first < panels.size(); first += columns) {
    const std::size_t end = std::min(first + columns, panels.size());
    double height = 0;
    std::size_t lines = 0;
    for (std::size_t i = first; i < end; ++i) {
      std::visit(
          [&](const auto& p) {
            height = std::max(height, height_of(p, cell_width));
            lines = std::max(lines, title_lines(p.title, cell_width).size());
          },
          *panels[i]);
    }
    const double title = lines == 0 ? 8 : 11 + kTitleLine * static_cast<double>(lines);
    for (std::size_t i = first; i < end; ++i) {
      const Cell cell{.x = place.margin + static_cast<double>(i - first) * (cell_width + kGap),
                      .y = y,
                      .width = cell_width,
                      .title_height = title};
      std::visit([&](const auto& panel) { draw(svg, panel, cell); }, *panels[i]);
    }
    y += title + height + 8;
  }
  for (const auto& line : legend_lines(section.legend, width)) {
    double x = place.margin, more = 0;
    y += kLegendLine;
    for (const LegendEntry* entry : line) {
      const double entry_width = legend_entry_width(*entry, width);
      more = std::max(more, draw_legend_entry(svg, *entry, x, y, entry_width));
      x += entry_width + kGap;
    }
    y += more;
  }
  return y;
}

}  // namespace

std::string caption_of(const Figure& figure) {
  std::string out;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) out += (out.empty() ? "" : " ") + text + (text.ends_with('.') ? "" : ".");
  };
  add(figure.title);
  add(figure.subtitle);
  for (const std::string& note : figure.notes) add(note);
  return out;
}

std::string to_svg(const Figure& figure) {
  const int page_width = figure.paper ? kPaperWidth : std::max(figure.width, kNarrowest);
  Place place;
  if (figure.paper) place.margin = 2;  // the paper has margins
  place.width = page_width - 2 * place.margin;
  std::string body;
  double y = 4;
  if (!figure.paper) {
    y = draw_lines(body, figure.title, y, 18, place, "font-size=\"15\" font-weight=\"bold\"", 15,
                   15 * kBold);
    y = draw_lines(body, figure.subtitle, y + 2, 16, place, "fill=\"#555\"", kLetter, kLetter) + 12;
  }
  y = draw_grid(body, {"", figure.columns, figure.panels, figure.legend}, y, place);
  for (const Section& section : figure.sections) {
    if (!section.title.empty()) {
      y = draw_lines(body, section.title, y + 8, 16, place, "font-size=\"13\" font-weight=\"bold\"",
                     13, 13 * kBold) +
          6;
    }
    y = draw_grid(body, section, y, place) + 6;
  }
  if (!figure.paper) {
    if (!figure.notes.empty()) y += 6;
    for (const std::string& note : figure.notes) {
      y = draw_lines(body, note, y, kNoteLine, place, "fill=\"#555\"", kLetter, kLetter);
    }
  }
  const int height = static_cast<int>(y) + (figure.paper ? 6 : 14);

  const std::string title = escape_markup(figure.title);
  const double mm = static_cast<double>(kPaperMillimetres) / kPaperWidth;
  const std::string size =
      figure.paper
          ? fmt::format("width=\"{}mm\" height=\"{:.2f}mm\"", kPaperMillimetres, height * mm)
          : fmt::format("width=\"{}\" height=\"{}\"", page_width, height);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" {4} "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\" font-family=\"Helvetica, Arial, "
      "sans-serif\" font-size=\"{3}\" fill=\"#222\">\n<title>{2}</title>\n",
      page_width, height, title, kLetter, size);
  if (!figure.data.empty()) svg += "<desc>" + escape_markup(data_text(figure.data)) + "</desc>\n";
  svg += fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", page_width, height);
  return svg + body + "</svg>\n";
}

}  // namespace convscope
