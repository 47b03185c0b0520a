// SPDX-License-Identifier: Apache-2.0
// roofline_plot.cpp: GFLOP/s against FLOPs per byte under the machine's measured peaks. Bytes are a
// lower bound: each tensor of the direction is read or written once. The left panel shows executed
// FLOPs, which stay under the roof. The right panel shows the FLOPs of the textbook loops, so
// Winograd and FFT may be above the roof. Williams, Waterman, Patterson 2009, doi
// 10.1145/1498765.1498785.
#include <algorithm>
#include <cmath>

#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"

namespace convscope {
namespace {

// The lines are grey, because the marks use the colours; each level has different dashes.
struct Level {
  const char* name;
  Peak CpuPeaks::*bytes_per_second;
  int style;
};
constexpr int kPeakStyle = 15;
constexpr Level kLevels[] = {{"L2", &CpuPeaks::l2_copy, 23},
                             {"L3", &CpuPeaks::l3_copy, 31},
                             {"DRAM", &CpuPeaks::dram_copy, 39}};

// Returns the measured peak rate of multiply-adds, for int8 (`bytes`) or f32 operands. Returns 0
// for int8 if the file has no int8 peak: an estimate from this machine would be wrong for the
// machine that was measured.
double peak_of(const BenchSetting& setting, bool bytes) {
  const CpuPeaks& c = *setting.peaks;
  return (bytes ? c.int8 : c.flops).with(std::min(setting.threads, c.cores), c.cores);
}

// Draws the roof: a horizontal line at the peak rate, and a slanted line up to it for the bandwidth
// of each memory level.
void add_roof(LinePanel& panel, const BenchSetting& setting, bool bytes, double from, double to) {
  if (!setting.peaks || !(peak_of(setting, bytes) > 0)) return;
  const CpuPeaks& c = *setting.peaks;
  const int used = std::min(setting.threads, c.cores);
  const double peak = peak_of(setting, bytes) * 1e-9;
  double flat = to;  // the peak's line begins where the first bandwidth reaches it
  for (const Level& level : kLevels) {
    const double bandwidth = (c.*level.bytes_per_second).with(used, c.cores) * 1e-9;
    if (!(bandwidth > 0)) continue;
    const double ridge = peak / bandwidth;
    flat = std::min(flat, ridge);
    if (ridge <= from) continue;
    const double start = std::max(from, panel.y.include[0] / bandwidth);
    const std::string name = cat(level.name, " ", number_text(bandwidth, 3), " GB/s");
    panel.series.push_back({.name = name,
                            .style = level.style,
                            .x = {start, ridge},
                            .y = {start * bandwidth, peak},
                            .label = name,
                            .marks = false});
  }
  flat = std::clamp(flat, from, to);
  const std::string name = cat("peak ", number_text(peak, 4), " GFLOP/s");
  panel.series.push_back({.name = name,
                          .style = kPeakStyle,
                          .x = {flat, to},
                          .y = {peak, peak},
                          .label = name,
                          .marks = false});
}

struct Range {
  Extent flops_per_byte, gflops;
};

// All panels have the same scale, so that they can be compared.
Range range_of(const BenchSet& set) {
  Range range;
  for (const BenchedRow& row : set.rows) {
    if (!(row.median_ms > 0)) continue;
    const BenchedProblem& problem = set.problems[row.problem];
    for (const double gflops : {row.gflops_executed, row.gflops_effective}) {
      if (!(gflops > 0)) continue;
      range.gflops.add(gflops);
      range.flops_per_byte.add(gflops * 1e6 * row.median_ms / problem.nominal_bytes());
    }
  }
  for (const BenchPart& part : set.parts()) {
    const BenchSetting& setting = set.settings[part.setting];
    if (!setting.peaks || !(peak_of(setting, part.bytes) > 0)) continue;
    const CpuPeaks& c = *setting.peaks;
    const int used = std::min(setting.threads, c.cores);
    const double peak = peak_of(setting, part.bytes);
    range.gflops.add(peak * 1e-9);
    for (const Level& level : kLevels) {
      const double bandwidth = (c.*level.bytes_per_second).with(used, c.cores);
      // Extends the axis so that the slanted part of each line is long enough for its name.
      if (bandwidth > 0) range.flops_per_byte.add(peak / bandwidth / 8);
    }
  }
  return range;
}

LinePanel panel_of(const BenchSet& set, const BenchPart& part, const Range& range,
                   const std::vector<std::string>& algorithms, bool executed) {
  const double low = range.flops_per_byte.low / 1.5, high = range.flops_per_byte.high * 1.5;
  LinePanel panel{
      .title = part.title + (executed ? ": executed" : ": effective"),
      .x = {.label = "intensity (FLOP per byte of the tensors, each once)",
            .log = true,
            .include = {low, high}},
      .y = {.label = executed ? "speed (GFLOP/s executed)" : "speed (GFLOP/s, textbook FLOPs)",
            .log = true,
            .include = {range.gflops.low / 1.2, range.gflops.high * 1.2}},
      .height = 340};
  for (std::size_t a = 0; a < algorithms.size(); ++a) {
    Series s{.name = algorithms[a], .style = algorithm_style(algorithms[a]), .line = false};
    for (const std::size_t problem : part.problems) {
      const BenchedRow* row = set.find(part, problem, algorithms[a]);
      if (row == nullptr) continue;
      const double gflops = executed ? row->gflops_executed : row->gflops_effective;
      if (!(gflops > 0)) continue;
      s.x.push_back(gflops * 1e6 * row->median_ms / set.problems[problem].nominal_bytes());
      s.y.push_back(gflops);
      s.titles.push_back(cat(algorithms[a], ", ", set.names[problem], ": ", number_text(gflops, 4),
                             " GFLOP/s, ", number_text(s.x.back(), 3), " FLOP/byte"));
    }
    if (!s.x.empty()) panel.series.push_back(std::move(s));
  }
  add_roof(panel, set.settings[part.setting], part.bytes, low, high);
  return panel;
}

Plot draw_roofline(const BenchSet& set) {
  Plot plot;
  const Range range = range_of(set);
  if (!range.gflops.any) return {.why_not = "no row was timed"};
  Figure figure{.title = "Roofline", .subtitle = set.text(), .columns = 2};
  figure.data = {{"direction", "measured with", "problem", "algorithm", "GFLOP/s executed",
                  "FLOP/byte executed", "GFLOP/s effective", "FLOP/byte effective"}};
  const std::vector<std::string> algorithms = set.algorithms();
  for (const BenchPart& part : set.parts()) {
    for (const bool executed : {true, false}) {
      figure.panels.emplace_back(panel_of(set, part, range, algorithms, executed));
    }
    for (const std::size_t problem : part.problems) {
      for (const std::string& algorithm : algorithms) {
        const BenchedRow* row = set.find(part, problem, algorithm);
        if (row == nullptr || !(row->median_ms > 0)) continue;
        const double per_gflops = 1e6 * row->median_ms / set.problems[problem].nominal_bytes();
        figure.data.push_back({std::string(name_of(part.direction)),
                               set.settings[part.setting].label, set.problems[problem].text(),
                               algorithm, number_text(row->gflops_executed, 4),
                               number_text(row->gflops_executed * per_gflops, 4),
                               number_text(row->gflops_effective, 4),
                               number_text(row->gflops_effective * per_gflops, 4)});
      }
    }
  }
  for (std::size_t a = 0; a < algorithms.size(); ++a) {
    figure.legend.push_back({.name = algorithms[a],
                             .style = algorithm_style(algorithms[a]),
                             .form = LegendEntry::Form::mark});
  }
  const auto add_roof_entry = [&](const std::string& roof, const char* meaning, int style) {
    const auto has_it = [&](const AnyPanel& panel) {
      return std::ranges::any_of(std::get<LinePanel>(panel).series, [&](const Series& s) {
        return !s.label.empty() && s.label.starts_with(roof + " ");
      });
    };
    if (std::ranges::none_of(figure.panels, has_it)) return;
    figure.legend.push_back(
        {.name = roof + meaning, .style = style, .form = LegendEntry::Form::plain_line});
  };
  add_roof_entry("peak", " of multiply-add", kPeakStyle);
  for (const Level& level : kLevels) add_roof_entry(level.name, " bandwidth", level.style);
  figure.notes = {
      "a mark: one algorithm on one problem; executed: FLOPs that the algorithm states; effective: "
      "2 N K P Q (C/G) R S"};
  bool any_roof = false;
  for (const BenchSetting& setting : set.settings) {
    any_roof = any_roof || setting.peaks.has_value();
    if (!setting.peaks) {
      plot.remarks.push_back(
          cat("no measured peaks for ", setting.label, ", because the file's machine has none"));
    }
  }
  if (any_roof) {
    figure.notes.emplace_back(
        "lines: measured peak of multiply-add and copy bandwidths with as many threads; data in a "
        "cache may exceed the line of a slower level");
  }
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("roofline", {.summary = "GFLOP/s below the machine's measured peaks",
                                     .order = 110,
                                     .draw_bench = convscope::draw_roofline})
