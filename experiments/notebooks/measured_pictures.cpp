// SPDX-License-Identifier: Apache-2.0
// measured_pictures.cpp: a timed ladder in a cell, and points below this machine's roofline.
#include "experiments/notebooks/measured_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "experiments/bench/ladder/ladder_bench.h"
#include "experiments/bench/peaks/measure_peaks.h"
#include "experiments/notebooks/display.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

// Returns nothing with CONVSCOPE_MEASURE=off, because results must then not depend on the machine.
std::optional<CpuPeaks> peaks_of_notebook() {
  if (!believes_measured_peaks()) return std::nullopt;
  return cpu_peaks([] {
    std::puts("measuring this machine once, about 3 s: peak arithmetic and bandwidth");
    std::fflush(stdout);
  });
}

MeasuredLadder measured(const LadderResult& result) {
  MeasuredLadder out{.name = result.name,
                     .problem = result.problem.text(),
                     .direction = std::string(name_of(result.direction)),
                     .measured_on = cat("cpu, ", num_threads(), " threads"),
                     .peak_gflops = result.peak_gflops,
                     .total_factor = result.total_factor(),
                     .rungs = {}};
  for (const LadderRow& row : result.rows) {
    out.rungs.push_back({.name = row.rung,
                         .adds = row.adds,
                         .left_out = row.left_out,
                         .median_ms = row.timed() ? row.time.median_ms : 0,
                         .gflops = row.gflops_effective,
                         .peak_percent = row.peak_percent,
                         .factor = row.factor});
  }
  return out;
}

}  // namespace

void show_ladder(const std::string& name, const ShowLadderOptions& options) {
  const Conv2dLadder& ladder = *ladders_named(name, Device{}).front();
  LadderOptions timing{.min_seconds = options.min_seconds, .least_samples = 3};
  timing.peaks = peaks_of_notebook();
  const Conv2dProblem problem =
      Conv2dProblem::parse(options.problem.empty() ? ladder.problem : options.problem);
  problem.check();
  const LadderResult result =
      bench_ladder(ladder, problem, Direction::forward, timing, [](const std::string&) {});
  const Plot plot = plot_kinds().get("ladder").draw_ladders({.ladders = {measured(result)}});
  for (const std::string& remark : plot.remarks) std::printf("%s\n", remark.c_str());
  std::fflush(stdout);
  if (!plot.figure) fail("show_ladder", plot.why_not);
  show(*plot.figure);
}

void show_roofline(const std::vector<RooflinePoint>& points, int threads) {
  Extent intensity, speed;
  LinePanel panel{.x = {.label = "intensity (FLOP per byte)", .log = true},
                  .y = {.label = "speed (GFLOP/s)", .log = true},
                  .height = 320};
  Figure figure{.title = "Roofline"};
  for (const RooflinePoint& point : points) {
    CONVSCOPE_CHECK(point.flops > 0 && point.bytes > 0 && point.ms > 0, "show_roofline",
                    "expected FLOPs, bytes and ms above 0, got a point '", point.name, "' without");
    const auto style = static_cast<int>(panel.series.size());
    const double x = point.flops / point.bytes, y = point.flops / (point.ms * 1e6);
    panel.series.push_back({.name = point.name, .style = style, .x = {x}, .y = {y}, .line = false});
    figure.legend.push_back({.name = cat(point.name, ": ", number_text(x, 3), " FLOP/byte, ",
                                         number_text(y, 3), " GFLOP/s"),
                             .style = style,
                             .form = LegendEntry::Form::mark});
    intensity.add(x);
    speed.add(y);
  }
  if (const auto peaks = peaks_of_notebook()) {
    constexpr int kRoof = 7;  // grey
    const int used = std::min(std::max(1, threads), peaks->cores);
    const double peak = peaks->flops.with(used, peaks->cores) * 1e-9;
    const double memory = peaks->dram_copy.with(used, peaks->cores) * 1e-9;
    const double ridge = peak / memory;
    const double low = std::min(intensity.any ? intensity.low : ridge, ridge) / 4;
    const double high = std::max(intensity.any ? intensity.high : ridge, ridge) * 4;
    panel.series.push_back({.name = "memory",
                            .style = kRoof,
                            .x = {low, std::sqrt(low * ridge), ridge},
                            .y = {low * memory, std::sqrt(low * ridge) * memory, peak},
                            .label = cat("memory ", number_text(memory, 3), " GB/s"),
                            .marks = false});
    panel.series.push_back({.name = "peak",
                            .style = kRoof,
                            .x = {ridge, std::sqrt(ridge * high), high},
                            .y = {peak, peak, peak},
                            .label = cat("peak ", number_text(peak, 3), " GFLOP/s"),
                            .marks = false});
    figure.subtitle = cat("this machine, ", used, used == 1 ? " thread" : " threads");
  } else {
    figure.subtitle = "without a measured peak: CONVSCOPE_MEASURE=off";
  }
  figure.panels.emplace_back(std::move(panel));
  show(figure);
}

}  // namespace convscope
