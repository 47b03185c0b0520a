// SPDX-License-Identifier: Apache-2.0
// figure.h: a figure as data: panels in a grid, a legend outside of them, and the plotted numbers.
// to_svg() draws it as one SVG that needs no font, script or other file.
//
//   Figure figure{.title = "Loss", .panels = {LinePanel{.x = {.label = "epoch"}, ...}}};
//   write_file("loss.svg", to_svg(figure));
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "experiments/report/chart/axis.h"
#include "framework/export.h"

namespace convscope {

inline constexpr int kFigureWidth = 960;  // pixels; default width of a figure
inline constexpr int kNarrowest = 320;
// The width of one column of a two-column paper. A figure of 331 pixels, printed 85 mm wide, shows
// a font of 11 pixels at a size of 8 points.
inline constexpr int kPaperMillimetres = 85, kPaperWidth = 331;

// A series of points, with or without a line. x and y have the same length; a NaN or infinity is a
// gap.
struct Series {
  std::string name = {};
  int style = 0;  // series_style.h
  std::vector<double> x = {}, y = {};
  std::vector<double> low = {},
                      high = {};  // band around a line, or error bars of marks; empty: none
  std::vector<double> x_low = {}, x_high = {};  // horizontal error bars; empty: none
  std::vector<std::string> titles = {};         // tooltips of the marks; empty: none
  std::vector<std::string> tags = {};           // short text next to a mark; empty: none
  // Text along the line, away from marks. If space is short, the text is shortened to its first
  // word or left out.
  std::string label = {};
  bool line = true, marks = true, hollow = false;
  bool muted = false;   // thin and grey, below the others, for comparison
  bool stairs = false;  // the line goes right, then up or down
};

struct LinePanel {
  std::string title = {};
  AxisSpec x = {}, y = {};
  std::vector<Series> series = {};
  bool end_labels = false;  // names at the right ends of the lines where space allows
  int height = 260;         // pixels, including title and axis
};

// One bar per category; NaN means no value.
struct BarSeries {
  std::string name = {};
  std::vector<double> values = {};
  std::vector<double> std = {};         // error bars; empty: none
  std::vector<std::string> notes = {};  // text after the numbers; empty: none
  std::vector<int> note_styles = {};    // mark before each number; below 0: none
  int style = -1;                       // colour and mark of a config; below 0: light or dark
};

// Horizontal bars, so that long names are readable.
struct BarPanel {
  std::string title = {};
  AxisSpec x = {};
  std::vector<std::string> categories = {};
  std::vector<std::string> captions = {};  // small line below the bars of each; empty: none
  std::vector<int> category_styles = {};   // mark next to each name; for one series its colour
  std::vector<BarSeries> series = {};
  bool dots = false;  // marks in the series' styles instead of bars, for many series
  // The value at which bars begin on a logarithmic axis, where a line marks it (1 for a ratio).
  // Larger values extend to the right, smaller ones to the left. Requires x.log.
  double log_base = 1;
};

struct HeatCell {
  std::string text = {};  // the number in the cell, so that readers need not rely on shades
  // The shade goes from 0 (white) to 1 (dark blue) or to -1 (dark brown). NaN means that there is
  // no value; the cell's text is then slanted.
  double shade = 0;
  std::string title = {};  // tooltip
  bool framed = false;
};

// A table of shaded cells, cells[row][column], with names at the left and at the top. If cells
// would be too narrow for their texts, the table is split by columns into several tables below each
// other.
struct HeatPanel {
  std::string title = {};
  std::vector<std::string> rows = {}, columns = {};
  std::vector<int> column_styles = {};  // mark below each name; below 0: none
  std::vector<std::vector<HeatCell>> cells = {};
  std::vector<std::pair<double, std::string>> scale = {};  // shades and their meaning, in order
  std::string scale_label = {};                            // with its unit
  std::string note = {};                                   // below the table
  bool one_table = false;  // a matrix: never split; texts that do not fit are left out
};

// A grey image with dots, which are sample positions. A line connects each dot to its position
// without the learned offset.
struct ImagePanel {
  struct Dot {
    double x = 0, y = 0, from_x = 0, from_y = 0;  // pixels; 0 is the centre of the first pixel
    double area = 1;                              // area of the dot, 0 to 1
    std::string title = {};                       // tooltip
  };
  std::string title = {};
  int rows = 0, columns = 0;
  std::vector<double> shades = {};  // row by row, 0 white to 1 black
  std::vector<Dot> dots = {};
  int style = 0;  // style of the dots
};

struct LegendEntry {
  enum class Form { line, mark, hollow_mark, bar, plain_line };
  std::string name = {};
  int style = 0;
  Form form = Form::line;
  std::string tag = {};  // short text before the name
};

// The legend as a cell of the grid, for long legends.
struct LegendPanel {
  std::string title = {};
  std::vector<LegendEntry> entries = {};
};

using AnyPanel = std::variant<LinePanel, BarPanel, HeatPanel, ImagePanel, LegendPanel>;

// A part of a figure with its own heading and legend: "mnist".
struct Section {
  std::string title = {};
  int columns = 1;
  std::vector<AnyPanel> panels = {};
  std::vector<LegendEntry> legend = {};
};

struct Figure {
  std::string title = {}, subtitle = {};
  int width = kFigureWidth;  // pixels; a narrow figure has fewer columns
  // The figure has the width of one paper column, kPaperMillimetres, instead of `width`. Title,
  // subtitle and notes are left out, because the caption of the paper has them.
  bool paper = false;
  int columns = 1;
  std::vector<AnyPanel> panels = {};                // row by row
  std::vector<LegendEntry> legend = {};             // below the panels
  std::vector<Section> sections = {};               // below the legend
  std::vector<std::string> notes = {};              // small lines at the bottom
  std::vector<std::vector<std::string>> data = {};  // a table; the first row is the head
};

// Returns the SVG; the same figure gives the same text.
CONVSCOPE_API std::string to_svg(const Figure& figure);
// Returns title, subtitle and notes as sentences for the caption, because a paper's figure omits
// them.
CONVSCOPE_API std::string caption_of(const Figure& figure);

}  // namespace convscope
