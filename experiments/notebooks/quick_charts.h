// SPDX-License-Identifier: Apache-2.0
// quick_charts.h: lines and bars in one statement, drawn with the project's charts
// (experiments/report/chart/figure.h, which has more options).
//
//   line_plot({.title = "error", .x = "outputs of a tile", .y = "error"}, {{"F(m,3)", m, errors}});
//   bar_plot({.title = "time", .x = "ms"}, {{"direct", 0.3}, {"fft", 1.2}});
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct PlotOptions {
  std::string title = {};
  std::string x = {}, y = {};         // labels of the axes, with units
  bool log_x = false, log_y = false;  // only where every value is above 0
  bool from_zero = false;             // the value axis begins at 0
  bool whole_x = false;               // no ticks between whole numbers of x
};

struct PlotLine {
  std::string name;
  std::vector<double> x, y;  // of the same length
};

// Draws lines. Throws an error when a line's x and y differ in length.
CONVSCOPE_API void line_plot(const PlotOptions& options, const std::vector<PlotLine>& lines);
// Draws horizontal bars, each with its number at the end. options.x describes their axis; with
// options.log_x the axis begins at a power of ten.
CONVSCOPE_API void bar_plot(const PlotOptions& options,
                            const std::vector<std::pair<std::string, double>>& bars);

}  // namespace convscope
