// SPDX-License-Identifier: Apache-2.0
// quick_charts.cpp: lines and bars in one statement, drawn with the project's charts.
#include "experiments/notebooks/quick_charts.h"

#include <algorithm>
#include <cmath>

#include "experiments/notebooks/display.h"
#include "experiments/report/chart/series_style.h"
#include "framework/check.h"

namespace convscope {

void line_plot(const PlotOptions& options, const std::vector<PlotLine>& lines) {
  LinePanel panel{.x = {.label = options.x, .log = options.log_x, .whole_numbers = options.whole_x},
                  .y = {.label = options.y, .log = options.log_y, .from_zero = options.from_zero}};
  Figure figure{.title = options.title};
  for (const PlotLine& line : lines) {
    CONVSCOPE_CHECK(line.x.size() == line.y.size(), "line_plot", "expected as many x as y of '",
                    line.name, "', got ", line.x.size(), " and ", line.y.size());
    const auto style = static_cast<int>(panel.series.size());
    panel.series.push_back({.name = line.name, .style = style, .x = line.x, .y = line.y});
    if (lines.size() > 1) figure.legend.push_back({.name = line.name, .style = style});
  }
  figure.panels.emplace_back(std::move(panel));
  show(figure);
}

void bar_plot(const PlotOptions& options, const std::vector<std::pair<std::string, double>>& bars) {
  BarPanel panel{.x = {.label = options.x, .log = options.log_x, .from_zero = options.from_zero},
                 .series = {{.name = options.x}}};
  Extent extent;
  for (const auto& [name, value] : bars) {
    panel.categories.push_back(name);
    panel.series[0].values.push_back(value);
    if (value > 0) extent.add(value);
  }
  if (options.log_x && extent.any) {
    panel.log_base = std::pow(10.0, std::floor(std::log10(extent.low)));
    panel.x.include = {panel.log_base, extent.high};
  }
  show(Figure{.title = options.title, .panels = {std::move(panel)}});
}

}  // namespace convscope
