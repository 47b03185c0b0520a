// SPDX-License-Identifier: Apache-2.0
// bar_panel.cpp: horizontal bars with error bars and the numbers at their ends.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "experiments/report/chart/panel.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "framework/check.h"

namespace convscope {
namespace {

constexpr double kBottom = 42;
constexpr double kBar = 12, kBetween = 10;  // height of a bar; space between categories
constexpr double kDot = 8;
constexpr double kNarrow = 400;    // panels narrower than this may have names above their bars
constexpr double kCaption = 14;    // height of a line
constexpr double kMarkWidth = 12;  // before a number
constexpr BarLook kLooks[] = {
    {"#0b5a8a", "#0b5a8a"}, {"#f2b155", "#8a5a10"}, {"#ffffff", "#333333"}, {"#a9c6b4", "#2f6b4a"}};

double bar_height(const BarPanel& panel) { return panel.dots ? kDot : kBar; }

double value_at(const std::vector<double>& values, std::size_t i) {
  return i < values.size() ? values[i] : std::nan("");
}

// Returns the number at a bar's end with its note.
std::string end_text(const BarSeries& s, std::size_t i) {
  const std::string text = measured_text(value_at(s.values, i), value_at(s.std, i));
  return i < s.notes.size() && !s.notes[i].empty() ? text + " " + s.notes[i] : text;
}

// Returns the style of the mark between a bar and its number. Some bars have a separate style for
// the note at their end; all others use that of the series.
int mark_style(const BarSeries& s, std::size_t i) {
  return i < s.note_styles.size() ? s.note_styles[i] : s.style;
}

struct Layout {
  double left = 0, right = 0, bars = 0, category = 0;
  double above = 0;                                       // height of names above their bars
  std::vector<std::vector<std::string>> names, captions;  // in lines
};

Layout layout_of(const BarPanel& panel, double width) {
  Layout out;
  double names = 0, texts = 0;
  std::size_t name_lines = 1, caption_lines = 0;
  for (const std::string& name : panel.categories) {
    out.names.push_back(wrap_text(name, kLetter, width * 0.36, 3));
    name_lines = std::max(name_lines, out.names.back().size());
    for (const std::string& line : out.names.back()) {
      names = std::max(names, text_width(line, kLetter));
    }
  }
  for (const BarSeries& s : panel.series) {
    for (std::size_t i = 0; i < panel.categories.size() && !panel.dots; ++i) {
      const double mark = mark_style(s, i) >= 0 ? kMarkWidth : 0;
      texts = std::max(texts, text_width(end_text(s, i), kLetter) + mark);
    }
  }
  const double mark = panel.category_styles.empty() ? 0 : kMarkWidth;
  out.left = names + 10 + mark;
  // Names are placed above the bars where names and numbers would leave too little space for bars.
  if (width < kNarrow && width - out.left - texts < width / 3) {
    name_lines = 0;
    for (std::size_t i = 0; i < out.names.size(); ++i) {
      out.names[i] = wrap_text(panel.categories[i], kLetter, width - mark - 12, 3);
      name_lines = std::max(name_lines, out.names[i].size());
    }
    out.above = kNameLine * static_cast<double>(name_lines) + 2;
    name_lines = 0;
    out.left = 12;  // for half of the first number below the axis
  }
  // If long texts would leave too little space for the bars, each gets a separate line.
  out.right = width - std::clamp(texts, 6.0, (out.above > 0 ? 0.6 : 0.45) * width) - 16;
  for (const std::string& caption : panel.captions) {
    out.captions.push_back(wrap_text(caption, kLetter, width - out.left - 5, 4));
    caption_lines = std::max(caption_lines, out.captions.back().size());
  }
  out.bars = bar_height(panel) * static_cast<double>(std::max<std::size_t>(1, panel.series.size()));
  const double needed = out.bars + kCaption * static_cast<double>(caption_lines);
  out.category =
      std::max(needed, kNameLine * static_cast<double>(name_lines)) + kBetween + out.above;
  return out;
}

}  // namespace

BarLook bar_look(int series) {
  return kLooks[static_cast<std::size_t>(std::max(series, 0)) % std::size(kLooks)];
}

double height_of(const BarPanel& panel, double width) {
  return kBottom + layout_of(panel, width).category * static_cast<double>(panel.categories.size()) +
         more_label_lines(panel.x, width);
}

void draw(std::string& svg, const BarPanel& panel, const Cell& cell) {
  Extent extent;
  for (double value : panel.x.include) extent.add(value);
  for (const BarSeries& s : panel.series) {
    for (std::size_t i = 0; i < panel.categories.size(); ++i) {
      const double value = value_at(s.values, i);
      const double std = value_at(s.std, i);
      extent.add(value);
      if (std > 0) extent.add(value + std);
    }
  }
  const Layout layout = layout_of(panel, cell.width);
  const double left = cell.x + layout.left;
  const double right = cell.x + layout.right;
  const double top = cell.y + cell.title_height;
  const double bottom = top + layout.category * static_cast<double>(panel.categories.size());
  AxisSpec spec = panel.x;
  spec.from_zero = (!panel.dots && !panel.x.log) || spec.from_zero;
  if (panel.x.log) extent.add(panel.log_base);
  const Axis axis(spec, extent, std::max(2, static_cast<int>((right - left) / 75)), left, right);

  const double base = axis.log() ? axis.pixel(panel.log_base) : left;  // where bars begin

  auto out = std::back_inserter(svg);
  draw_title(svg, panel.title, left, cell);
  double free_from = -1e9;
  for (std::size_t i = 0; i < axis.ticks().size(); ++i) {
    const double x = axis.pixel(axis.ticks()[i]);
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}V{:.1f}\" stroke=\"#e2e2e2\"/>", x, top, bottom);
    const double half = text_width(axis.texts()[i], kLetter) / 2;
    if (x - half < free_from) continue;
    draw_text(svg, axis.texts()[i], x, bottom + 16, 80, "text-anchor=\"middle\"");
    free_from = x + half + 4;
  }
  for (std::size_t i = 0; i < panel.categories.size(); ++i) {
    const bool above = layout.above > 0;
    const double begin = top + layout.category * static_cast<double>(i) + kBetween / 2;
    const double from = begin + layout.above;  // of the bars
    const auto& name = layout.names[i];
    double line = from + layout.bars / 2 + 4 - kNameLine / 2 * static_cast<double>(name.size() - 1);
    line = name.size() > 1 ? std::max(line, from + 9) : line;
    if (above) line = from - 5 - kNameLine * static_cast<double>(name.size() - 1);
    const bool marked = i < panel.category_styles.size();
    if (marked) {
      svg += style_mark(panel.category_styles[i], above ? left + 9 : left - 9,
                        above ? line - 4 : from + layout.bars / 2, 3.6, false, "");
    }
    const double aside = marked ? kMarkWidth : 0;
    const double name_x = above ? left + 4 + aside : left - 6 - aside;
    for (std::size_t k = 0; k < name.size(); ++k, line += kNameLine) {
      const bool cut = k + 1 == name.size() && name[k].find("\xE2\x80\xA6") != std::string::npos;
      fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}{}</text>\n",
                     name_x, line, above ? "start" : "end",
                     cut ? "<title>" + escape_markup(panel.categories[i]) + "</title>" : "",
                     escape_markup(name[k]));
    }
    for (std::size_t k = 0; i < layout.captions.size() && k < layout.captions[i].size(); ++k) {
      draw_text(svg, layout.captions[i][k], left + 5,
                from + layout.bars + 11 + kCaption * static_cast<double>(k),
                cell.x + cell.width - left, "fill=\"#555\"");
    }
    if (panel.dots) {
      fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e2e2e2\"/>\n", left,
                     from - kBetween / 2, right);
    }
    for (std::size_t k = 0; k < panel.series.size(); ++k) {
      const BarSeries& s = panel.series[k];
      const double value = value_at(s.values, i);
      const double std = value_at(s.std, i);
      const double y = from + bar_height(panel) * static_cast<double>(k);
      const double middle = y + bar_height(panel) / 2;
      const std::string title = cat(panel.categories[i], ", ", s.name, ": ", end_text(s, i));
      if (!axis.can_show(value)) {
        if (!panel.dots) draw_text(svg, "-", left + 4, middle + 4, 40);
        continue;
      }
      const double at = axis.pixel(value);
      double end = std::max(at, base);
      if (!panel.dots) {
        const bool by_category = panel.series.size() == 1 && i < panel.category_styles.size();
        const int style = by_category ? panel.category_styles[i] : s.style;
        const BarLook look = style < 0 ? bar_look(static_cast<int>(k))
                                       : BarLook{style_color(style), style_color(style)};
        fmt::format_to(out,
                       "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                       "fill=\"{}\" stroke=\"{}\"><title>{}</title></rect>",
                       std::min(base, at), y + 1, std::abs(at - base), kBar - 2, look.fill,
                       look.outline, escape_markup(title));
      }
      if (std > 0) {
        const double from_x = axis.pixel(value - std);
        const double to_x = axis.pixel(value + std);
        // Black with a white edge is visible on dark and on light bars.
        for (const char* stroke : {"#fff\" stroke-width=\"3", "#000\" stroke-width=\"1.1"}) {
          fmt::format_to(out,
                         "<path d=\"M{0:.1f} {1:.1f}v5m0 -2.5H{2:.1f}m0 -2.5v5\" fill=\"none\" "
                         "stroke=\"{3}\"/>",
                         from_x, middle - 2.5, to_x, stroke);
        }
        end = std::max(end, to_x);
      }
      if (panel.dots) {
        svg +=
            style_mark(s.style >= 0 ? s.style : static_cast<int>(k), at, middle, 3.6, false, title);
      } else {
        if (const int style = mark_style(s, i); style >= 0) {
          svg += style_mark(style, end + 9, middle, 3.4, false, title);
          end += kMarkWidth;
        }
        draw_text(svg, end_text(s, i), end + 5, middle + 4, cell.x + cell.width - end - 5);
      }
    }
  }
  if (axis.log()) {
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}V{:.1f}\" stroke=\"#222\"/>\n", base, top, bottom);
  }
  fmt::format_to(out,
                 "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}\" fill=\"none\" "
                 "stroke=\"#222\"/>\n",
                 left, top, bottom, right);
  draw_x_label(svg, panel.x, axis.log(), (left + right) / 2, bottom + 33, cell);
}

}  // namespace convscope
