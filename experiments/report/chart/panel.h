// SPDX-License-Identifier: Apache-2.0
// panel.h: draws the panels of a figure into their cells of the grid.
#pragma once

#include <string>

#include "experiments/report/chart/figure.h"

namespace convscope {

struct Cell {
  double x = 0, y = 0, width = 0;
  double title_height = 0;  // of the highest title in the row, so that panels align
};

inline constexpr double kLetter = 11;    // font size of all text except titles, pixels
inline constexpr double kBold = 1.14;    // width factor of bold letters
inline constexpr double kNameLine = 13;  // distance between two lines of a name

// Returns the height below the title.
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

// Returns the width of a legend entry: its symbol and its name, which is wrapped to the width
// `most`.
double legend_entry_width(const LegendEntry& entry, double most);
// Draws a legend entry at (x, y). A name that is wider than `most` is wrapped. Returns the total
// height of all lines after the first.
double draw_legend_entry(std::string& svg, const LegendEntry& entry, double x, double y,
                         double most);

// Draws `text`, shortened to `width`. The <title> of a shortened text has the whole text.
// `attributes` are added to <text>.
void draw_text(std::string& svg, const std::string& text, double x, double y, double width,
               const char* attributes = "", double font_size = kLetter);

// Returns the lines of a panel's title in bold letters of 12 pixels, and their height.
inline constexpr double kTitleLine = 15;
std::vector<std::string> title_lines(const std::string& title, double width);
void draw_title(std::string& svg, const std::string& title, double x, const Cell& cell);

// The fill and the outline of the bars of a series. Different series also differ in lightness, for
// prints in grey.
struct BarLook {
  const char* fill;
  const char* outline;
};
BarLook bar_look(int series);

// Draws the label of a horizontal axis, wrapped to the panel's width. The label is centred at x
// where the panel's edges allow it. Returns the height of the label's lines below the first.
double more_label_lines(const AxisSpec& spec, double width);
void draw_x_label(std::string& svg, const AxisSpec& spec, bool log, double x, double y,
                  const Cell& cell);

}  // namespace convscope
