// SPDX-License-Identifier: Apache-2.0
// svg_chart.h: line charts as SVG text, for reports that open anywhere and need nothing at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct ChartSeries {
  std::string name;          // in the legend
  std::vector<double> x, y;  // same length; a NaN or infinity breaks the line
};

struct LineChart {
  std::string title;
  std::string x_label, y_label;  // with units: "loss (nats)"
  std::vector<ChartSeries> series;
  bool log_y = false;  // only when every value is above 0; otherwise the axis stays linear
  bool y_from_zero = false;
  int width = 640, height = 340;  // pixels
};

// A complete <svg> element. The same chart gives the same text.
CONVSCOPE_API std::string to_svg(const LineChart& chart);

// `text` with & < > " ' replaced, for SVG and HTML.
CONVSCOPE_API std::string escape_markup(std::string_view text);

}  // namespace convscope
