// SPDX-License-Identifier: Apache-2.0
// panel.h: how the panels of a figure are drawn into their cells of the grid.
#pragma once

#include <string>

#include "experiments/report/chart/figure.h"

namespace convscope {

struct Cell {
  double x = 0, y = 0, width = 0, height = 0;  // pixels
};

inline constexpr double kLetter = 11;  // font size of axes and legends, pixels

double height_of(const LinePanel& panel);
double height_of(const BarPanel& panel);
double height_of(const HeatPanel& panel);
double height_of(const LegendPanel& panel);
void draw(std::string& svg, const LinePanel& panel, const Cell& cell);
void draw(std::string& svg, const BarPanel& panel, const Cell& cell);
void draw(std::string& svg, const HeatPanel& panel, const Cell& cell);
void draw(std::string& svg, const LegendPanel& panel, const Cell& cell);

// Width of an entry's sign and of its name, in a legend of at most this width.
double legend_entry_width(const LegendEntry& entry, double most);
void draw_legend_entry(std::string& svg, const LegendEntry& entry, double x, double y, double most);

// `text`, shortened to `width`; then the whole of it stands in its <title>. `attributes` are those
// of <text> beside its place.
void draw_text(std::string& svg, const std::string& text, double x, double y, double width,
               const char* attributes = "", double font_size = kLetter);

// Fill and outline of the bars of a series: told apart by lightness too.
struct BarLook {
  const char* fill;
  const char* outline;
};
BarLook bar_look(std::size_t series);

}  // namespace convscope
