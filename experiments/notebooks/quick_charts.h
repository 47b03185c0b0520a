// SPDX-License-Identifier: Apache-2.0
// quick_charts.h: lines and bars in one statement, drawn by the project's own charts
// (experiments/report/chart/figure.h, which can do more).
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
  std::string x = {}, y = {};         // what stands at the axes, with the unit
  bool log_x = false, log_y = false;  // only where every value is above 0
  bool from_zero = false;             // the axis of values begins at 0
  bool whole_x = false;               // no ticks between whole numbers of x
};

struct PlotLine {
  std::string name;
  std::vector<double> x, y;  // of the same length
};

// An error when a line's x and y differ in length.
CONVSCOPE_API void line_plot(const PlotOptions& options, const std::vector<PlotLine>& lines);
// Horizontal bars with their numbers, along options.x; with log_x from the power of ten below.
CONVSCOPE_API void bar_plot(const PlotOptions& options,
                            const std::vector<std::pair<std::string, double>>& bars);

}  // namespace convscope
