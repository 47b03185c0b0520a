// SPDX-License-Identifier: Apache-2.0
// panel.h: how the panels of a figure are drawn into their cells of the grid.
#pragma once

#include <string>

#include "experiments/report/chart/figure.h"

namespace convscope {

struct Cell {
  double x = 0, y = 0, width = 0;
  double title_height = 0;  // of the highest title in the row, so that its panels begin together
};

inline constexpr double kLetter = 11;    // font size of all but titles, pixels
inline constexpr double kBold = 1.14;    // so much wider are bold letters
inline constexpr double kNameLine = 13;  // from one line of a name to the next

// Below the title.
double height_of(const LinePanel& panel, double width);
double height_of(const BarPanel& panel, double width);
double height_of(const HeatPanel& panel, double width);
double height_of(const ImagePanel& panel, double width);
double height_of(const LegendPanel& panel, double width);
void draw(std::string& svg, const LinePanel& panel, const Cell& cell);
void draw(std::string& svg, const BarPanel& panel, const Cell& cell);
void draw(std::string& svg, const HeatPanel& panel, const Cell& cell);
void draw(std::string& svg, const ImagePanel& panel, const Cell& cell);
void draw(std::string& svg, const LegendPanel& panel, const Cell& cell);

// Width of an entry's sign and of its name, in a legend of at most this width.
double legend_entry_width(const LegendEntry& entry, double most);
// Returns the height of the lines below the first: a name that is wider than `most` is wrapped.
double draw_legend_entry(std::string& svg, const LegendEntry& entry, double x, double y,
                         double most);

// `text`, shortened to `width`; then the whole of it stands in its <title>. `attributes` are those
// of <text> beside its place.
void draw_text(std::string& svg, const std::string& text, double x, double y, double width,
               const char* attributes = "", double font_size = kLetter);

// The lines of a panel's title, in bold letters of 12 pixels, and their height.
inline constexpr double kTitleLine = 15;
std::vector<std::string> title_lines(const std::string& title, double width);
void draw_title(std::string& svg, const std::string& title, double x, const Cell& cell);

// Fill and outline of the bars of a series: told apart by lightness too.
struct BarLook {
  const char* fill;
  const char* outline;
};
BarLook bar_look(int series);

// The label of a horizontal axis, in as many lines as its panel's width asks for, centred at x as
// far as the panel's edges let it; and the height of the lines below the first.
double more_label_lines(const AxisSpec& spec, double width);
void draw_x_label(std::string& svg, const AxisSpec& spec, bool log, double x, double y,
                  const Cell& cell);

}  // namespace convscope
