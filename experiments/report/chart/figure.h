// SPDX-License-Identifier: Apache-2.0
// figure.h: a figure as data: panels in a grid, a legend that covers none of them, and the numbers
// behind it. to_svg() draws it as one SVG that needs no font, script or other file.
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

inline constexpr int kFigureWidth = 960;  // pixels, unless a figure names another width
inline constexpr int kNarrowest = 320;
// A column of a paper in two columns. 331 pixels over 85 mm make letters of 11 pixels 8 points
// high.
inline constexpr int kPaperMillimetres = 85, kPaperWidth = 331;

// Points, joined by a line or not. x and y have the same length; a NaN or infinity is a gap.
struct Series {
  std::string name = {};
  int style = 0;  // series_style.h
  std::vector<double> x = {}, y = {};
  std::vector<double> low = {},
                      high = {};  // a band around a line, error bars of marks; empty: none
  std::vector<double> x_low = {}, x_high = {};  // horizontal error bars; empty: none
  std::vector<std::string> titles = {};  // shown when the pointer rests on a mark; empty: none
  std::vector<std::string> tags = {};    // short text beside a mark; empty: none
  // Along the line, where no mark is; its first word, or none, for want of room.
  std::string label = {};
  bool line = true, marks = true, hollow = false;
  bool muted = false;   // thin and grey, behind the others: for comparison only
  bool stairs = false;  // the line goes right, then up or down
};

struct LinePanel {
  std::string title = {};
  AxisSpec x = {}, y = {};
  std::vector<Series> series = {};
  bool end_labels = false;  // names at the right ends of the lines, where there is room
  int height = 260;         // pixels, title and axis included
};

// One bar of each category; NaN: there is no value.
struct BarSeries {
  std::string name = {};
  std::vector<double> values = {};
  std::vector<double> std = {};         // error bars; empty: none
  std::vector<std::string> notes = {};  // behind the numbers; empty: none
  std::vector<int> note_styles = {};    // a mark in front of each number; below 0: none
  int style = -1;                       // colour and mark of a config; below 0: light or dark
};

// Horizontal bars, so that long names can be read.
struct BarPanel {
  std::string title = {};
  AxisSpec x = {};
  std::vector<std::string> categories = {};
  std::vector<std::string> captions = {};  // a small line below the bars of each; empty: none
  std::vector<int> category_styles = {};   // a mark beside each name; of one series, its colour too
  std::vector<BarSeries> series = {};
  bool dots = false;  // marks in the series' styles in place of bars, for more than a few series
  // On a logarithmic axis: where the bars begin, to the right or to the left, with a line (a
  // ratio's 1). x.log needs it.
  double log_base = 1;
};

struct HeatCell {
  std::string text = {};  // what stands in it, so that no reader depends on the shade
  // 0 white to 1 dark blue, to -1 dark brown; NaN: no value, the text is slanted
  double shade = 0;
  std::string title = {};  // shown when the pointer rests on it
  bool framed = false;
};

// A table of shaded cells: cells[row][column]. Rows and columns are named at the left and above.
// Where the cells would be too narrow for their texts, the columns go on in tables below.
struct HeatPanel {
  std::string title = {};
  std::vector<std::string> rows = {}, columns = {};
  std::vector<int> column_styles = {};  // a mark at the foot of each name; below 0: none
  std::vector<std::vector<HeatCell>> cells = {};
  std::vector<std::pair<double, std::string>> scale = {};  // shades and what they mean, in order
  std::string scale_label = {};                            // with its unit
  std::string note = {};                                   // below the table
  bool one_table = false;  // a matrix: never broken; texts that do not fit are left out
};

// A grey image, and dots on it, each with a line to where it would be if it had not moved.
struct ImagePanel {
  struct Dot {
    double x = 0, y = 0, from_x = 0, from_y = 0;  // pixels; 0 is the middle of the first one
    double area = 1;                              // of the dot: 0 to 1
    std::string title = {};                       // shown when the pointer rests on it
  };
  std::string title = {};
  int rows = 0, columns = 0;
  std::vector<double> shades = {};  // row by row, 0 white to 1 black
  std::vector<Dot> dots = {};
  int style = 0;  // of the dots
};

struct LegendEntry {
  enum class Form { line, mark, hollow_mark, bar, plain_line };
  std::string name = {};
  int style = 0;
  Form form = Form::line;
  std::string tag = {};  // short text in front
};

// The legend as a cell of the grid, when it is long.
struct LegendPanel {
  std::string title = {};
  std::vector<LegendEntry> entries = {};
};

using AnyPanel = std::variant<LinePanel, BarPanel, HeatPanel, ImagePanel, LegendPanel>;

// A part of a figure, with a heading and a legend of its own: "mnist".
struct Section {
  std::string title = {};
  int columns = 1;
  std::vector<AnyPanel> panels = {};
  std::vector<LegendEntry> legend = {};
};

struct Figure {
  std::string title = {}, subtitle = {};
  int width = kFigureWidth;  // pixels; a narrow figure has fewer columns
  // One column of a paper, kPaperMillimetres wide, in place of `width`. Title, subtitle and notes
  // are left out: the caption has them.
  bool paper = false;
  int columns = 1;
  std::vector<AnyPanel> panels = {};                // row by row
  std::vector<LegendEntry> legend = {};             // below the panels
  std::vector<Section> sections = {};               // below those
  std::vector<std::string> notes = {};              // small lines at the bottom
  std::vector<std::vector<std::string>> data = {};  // a table; first row: head
};

// The same figure gives the same text.
CONVSCOPE_API std::string to_svg(const Figure& figure);
// What a paper's figure leaves out: title, subtitle and notes, as sentences.
CONVSCOPE_API std::string caption_of(const Figure& figure);

}  // namespace convscope
