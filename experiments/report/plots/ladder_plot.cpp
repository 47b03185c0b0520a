// SPDX-License-Identifier: Apache-2.0
// ladder_plot.cpp: the rungs of each ladder, from the lesson to the fastest kernel: GFLOP/s, the
// speed-up over the rung below, and what the rung adds. On a logarithmic axis, equal speed-ups have
// equal lengths.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"

namespace convscope {
namespace {

std::string times_text(double factor) {
  return fmt::format("\u00D7{:.{}f}", factor, factor < 10 ? 2 : factor < 100 ? 1 : 0);
}

std::string note_of(const LadderRung& rung) {
  std::string out = "GFLOP/s";
  if (rung.peak_percent > 0) {
    out += fmt::format(", {:.{}f} % of peak", rung.peak_percent, rung.peak_percent < 10 ? 1 : 0);
  }
  return rung.factor > 0 ? out + ", " + times_text(rung.factor) : out;
}

std::string title_of(const MeasuredLadder& ladder) {
  std::string direction = ladder.direction;
  std::ranges::replace(direction, '_', ' ');
  const std::string factor =
      ladder.total_factor > 0 ? cat(", ", times_text(ladder.total_factor), " in all") : "";
  return cat(ladder.name, factor, ": ", direction, ", ", ladder.problem);
}

Plot draw_ladder(const LadderSet& set) {
  Plot plot;
  Figure figure{.title = "From the lesson to the fastest kernel"};
  figure.data = {{"ladder", "problem", "direction", "rung", "adds", "median (ms)", "GFLOP/s",
                  "% of peak", "speed-up over the rung below"}};
  Extent extent;
  std::vector<BarPanel> panels;
  for (const MeasuredLadder& ladder : set.ladders) {
    BarPanel panel{.title = title_of(ladder),
                   .x = {.label = "speed (GFLOP/s, textbook FLOPs)", .log = true},
                   .series = {{.name = "GFLOP/s"}}};
    for (const LadderRung& rung : ladder.rungs) {
      if (!(rung.median_ms > 0)) {
        plot.remarks.push_back(
            cat(ladder.name, ": the rung ", rung.name, " is left out: ", rung.left_out));
        continue;
      }
      panel.categories.push_back(rung.name);
      // "winograd_f2x3, avx2, 1 thread"
      panel.category_styles.push_back(algorithm_style(rung.name.substr(0, rung.name.find(','))));
      panel.captions.push_back(rung.adds);
      panel.series[0].values.push_back(rung.gflops);
      panel.series[0].notes.push_back(note_of(rung));
      extent.add(rung.gflops);
      figure.data.push_back({ladder.name, ladder.problem, ladder.direction, rung.name, rung.adds,
                             number_text(rung.median_ms, 4), number_text(rung.gflops, 4),
                             number_text(rung.peak_percent, 3), number_text(rung.factor, 4)});
    }
    if (!panel.categories.empty()) panels.push_back(std::move(panel));
    const std::string on = ladder.measured_on;
    if (figure.subtitle.find(on) == std::string::npos) {
      figure.subtitle += (figure.subtitle.empty() ? "" : "; ") + on;
    }
  }
  if (panels.empty()) return {.why_not = "no rung was timed"};
  // All panels have the same scale, which begins at the power of ten below the slowest rung.
  const double base = std::pow(10.0, std::floor(std::log10(extent.low)));
  for (BarPanel& panel : panels) {
    panel.log_base = base;
    panel.x.include = {base, extent.high};
    figure.panels.emplace_back(std::move(panel));
  }
  figure.notes = {
      "\u00D7: the time of the rung below divided by the time of this rung.",
      "% of peak: executed FLOPs / time, as a share of the measured multiply-add peak of "
      "the rung's threads."};
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("ladder", {.summary = "one algorithm from its lesson to the fastest kernel",
                                   .order = 150,
                                   .draw_ladders = convscope::draw_ladder})
