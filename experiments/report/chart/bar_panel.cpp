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
constexpr double kCaption = 15;
constexpr BarLook kLooks[] = {
    {"#0b5a8a", "#0b5a8a"}, {"#f2b155", "#8a5a10"}, {"#ffffff", "#333333"}, {"#a9c6b4", "#2f6b4a"}};

double top_margin(const BarPanel& panel) { return panel.title.empty() ? 8 : 26; }

double bar_height(const BarPanel& panel) { return panel.dots ? kDot : kBar; }

double bars_height(const BarPanel& panel) {
  return bar_height(panel) * static_cast<double>(std::max<std::size_t>(1, panel.series.size()));
}
double category_height(const BarPanel& panel) {
  return bars_height(panel) + (panel.captions.empty() ? 0 : kCaption) + kBetween;
}

double value_at(const std::vector<double>& values, std::size_t i) {
  return i < values.size() ? values[i] : std::nan("");
}

// The number at a bar's end, and what is said behind it.
std::string value_text(double value, double std);
std::string end_text(const BarSeries& s, std::size_t i) {
  const std::string text = value_text(value_at(s.values, i), value_at(s.std, i));
  return i < s.notes.size() && !s.notes[i].empty() ? text + " " + s.notes[i] : text;
}

std::string value_text(double value, double std) {
  if (!std::isfinite(value)) return "-";
  // Three digits of the value; its deviation with as many decimals.
  const double size = std::abs(value);
  const int before = size > 0 ? static_cast<int>(std::floor(std::log10(size))) : 0;
  const int decimals = std::clamp(2 - before, 0, 9);
  const std::string text = fmt::format("{:.{}f}", value, decimals);
  return std > 0 ? fmt::format("{} \xC2\xB1 {:.{}f}", text, std, decimals) : text;
}

}  // namespace

BarLook bar_look(std::size_t series) { return kLooks[series % std::size(kLooks)]; }

double height_of(const BarPanel& panel) {
  return top_margin(panel) + kBottom +
         category_height(panel) * static_cast<double>(panel.categories.size());
}

void draw(std::string& svg, const BarPanel& panel, const Cell& cell) {
  Extent extent;
  for (double value : panel.x.include) extent.add(value);
  double names = 0, texts = 0;
  for (const std::string& name : panel.categories) {
    names = std::max(names, text_width(name, kLetter));
  }
  for (const BarSeries& s : panel.series) {
    for (std::size_t i = 0; i < panel.categories.size(); ++i) {
      const double value = value_at(s.values, i);
      const double std = value_at(s.std, i);
      extent.add(value);
      if (std > 0) extent.add(value + std);
      if (!panel.dots) texts = std::max(texts, text_width(end_text(s, i), 10));
    }
  }
  names = std::min(names, cell.width * 0.38);
  const double left = cell.x + names + 10;
  const double right = cell.x + cell.width - texts - 16;
  const double top = cell.y + top_margin(panel);
  const double bottom = top + category_height(panel) * static_cast<double>(panel.categories.size());
  AxisSpec spec = panel.x;
  spec.from_zero = (!panel.dots && !panel.x.log) || spec.from_zero;
  if (panel.x.log) extent.add(panel.log_base);
  const Axis axis(spec, extent, std::max(2, static_cast<int>((right - left) / 75)), left, right);

  const double base = axis.log() ? axis.pixel(panel.log_base) : left;  // where bars begin

  auto out = std::back_inserter(svg);
  draw_text(svg, panel.title, left, cell.y + 16, cell.x + cell.width - left, "font-weight=\"bold\"",
            12);
  for (std::size_t i = 0; i < axis.ticks().size(); ++i) {
    const double x = axis.pixel(axis.ticks()[i]);
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}V{:.1f}\" stroke=\"#e2e2e2\"/>", x, top, bottom);
    draw_text(svg, axis.texts()[i], x, bottom + 16, 80, "text-anchor=\"middle\"");
  }
  for (std::size_t i = 0; i < panel.categories.size(); ++i) {
    const double from = top + category_height(panel) * static_cast<double>(i) + kBetween / 2;
    draw_text(svg, panel.categories[i], left - 6, from + bars_height(panel) / 2 + 4, names + 1,
              "text-anchor=\"end\"");
    if (i < panel.captions.size()) {
      draw_text(svg, panel.captions[i], left + 5, from + bars_height(panel) + 11,
                cell.x + cell.width - left - 5, "font-size=\"10\" fill=\"#555\"", 10);
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
        if (!panel.dots) draw_text(svg, "-", left + 4, middle + 3.5, 40, "font-size=\"10\"");
        continue;
      }
      const double at = axis.pixel(value);
      double end = std::max(at, base);
      if (!panel.dots) {
        const BarLook look = bar_look(k);
        fmt::format_to(out,
                       "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                       "fill=\"{}\" stroke=\"{}\"><title>{}</title></rect>",
                       std::min(base, at), y + 1, std::abs(at - base), kBar - 2, look.fill,
                       look.outline, escape_markup(title));
      }
      if (std > 0) {
        const double from_x = axis.pixel(value - std);
        const double to_x = axis.pixel(value + std);
        // White around black: seen on dark bars and on light ones.
        for (const char* stroke : {"#fff\" stroke-width=\"3", "#000\" stroke-width=\"1.1"}) {
          fmt::format_to(out,
                         "<path d=\"M{0:.1f} {1:.1f}v5m0 -2.5H{2:.1f}m0 -2.5v5\" fill=\"none\" "
                         "stroke=\"{3}\"/>",
                         from_x, middle - 2.5, to_x, stroke);
        }
        end = std::max(end, to_x);
      }
      if (panel.dots) {
        svg += style_mark(static_cast<int>(k), at, middle, 3.6, false, title);
      } else {
        draw_text(svg, end_text(s, i), end + 5, middle + 3.5, texts + 10, "font-size=\"10\"", 10);
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
  draw_text(svg, panel.x.label + (axis.log() ? ", log scale" : ""), (left + right) / 2, bottom + 33,
            cell.width, "text-anchor=\"middle\"");
}

}  // namespace convscope
