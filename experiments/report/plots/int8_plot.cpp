// SPDX-License-Identifier: Apache-2.0
// int8_plot.cpp: speed-up by integers: f32 time divided by int8 time of each layer, for Convscope's
// fastest algorithms and for the baseline.
#include <algorithm>
#include <cmath>
#include <functional>

#include "experiments/bench/statistics.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"
#include "layers/dispatch/algorithm.h"

namespace convscope {
namespace {

// Returns the same sizes in f32 and NCHW. Two problems describe the same layer if this result is
// equal, whatever their types and layouts.
Conv2dProblem sizes_of(Conv2dProblem problem) {
  problem.dtype = DType::f32;
  problem.types.reset();
  problem.layout = ActivationLayout::nchw;
  return problem;
}

// Returns the smallest `time` among rows of this panel's direction and setting whose problem
// satisfies `is`.
double least(const BenchSet& set, const BenchPart& part,
             const std::function<bool(const Conv2dProblem&)>& is, double BenchedRow::*time) {
  double out = std::nan("");
  for (const BenchedRow& row : set.rows) {
    if (row.setting != part.setting || row.direction != part.direction ||
        !is(set.problems[row.problem]) || !(row.median_ms > 0) || !(row.*time > 0)) {
      continue;
    }
    if (!(out <= row.*time)) out = row.*time;
  }
  return out;
}

Plot draw_int8(const BenchSet& set) {
  Plot plot;
  struct Kind {
    std::string name;
    double BenchedRow::*time;
  };
  std::vector<Kind> kinds = {{"ours", &BenchedRow::median_ms}};
  const std::string baseline = set.baseline();
  const bool both = std::ranges::any_of(set.rows, [&](const BenchedRow& row) {
    return row.baseline_median_ms > 0 && !is_code(operand_type_of(set.problems[row.problem]));
  });
  if (both) kinds.push_back({baseline + ", own layouts", &BenchedRow::baseline_median_ms});
  Figure figure{.title = "int8 against f32", .subtitle = set.text()};
  figure.data = {{"measured with", "problem", "system", "f32 ms", "bytes ms", "f32 / bytes"}};
  Extent extent;
  std::vector<BarPanel> panels;
  for (const BenchPart& part : set.parts()) {
    if (!part.bytes) continue;
    BarPanel panel{
        .title = part.title,
        .x = {.label = "time of f32 / time of int8; above 1 int8 is faster", .log = true}};
    for (const Kind& kind : kinds) panel.series.push_back({.name = kind.name});
    for (const std::size_t at : part.problems) {
      const Conv2dProblem& problem = set.problems[at];
      const Conv2dProblem sizes = sizes_of(problem);
      const auto is_plain = [&](const Conv2dProblem& other) {
        return !other.types && other.dtype == DType::f32 && other.math == MathMode::f32 &&
               sizes_of(other) == sizes;
      };
      const auto is_this = [&](const Conv2dProblem& other) { return other == problem; };
      if (!(least(set, part, is_plain, &BenchedRow::median_ms) > 0)) {
        plot.remarks.push_back(
            cat(problem.text(), " ", part.title, " is left out, because no row has it in f32"));
        continue;
      }
      panel.categories.push_back(set.names[at]);
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        const double f32 = least(set, part, is_plain, kinds[k].time);
        const double bytes = least(set, part, is_this, kinds[k].time);
        panel.series[k].values.push_back(f32 / bytes);
        extent.add(f32 / bytes);
        figure.data.push_back({set.settings[part.setting].label, problem.text(), kinds[k].name,
                               number_text(f32, 4), number_text(bytes, 4),
                               number_text(f32 / bytes, 4)});
      }
    }
    if (panel.categories.empty()) continue;
    panel.categories.emplace_back("geometric mean");
    for (BarSeries& s : panel.series) {
      std::vector<double> there = s.values;
      std::erase_if(there, [](double value) { return !(value > 0); });
      s.values.push_back(there.empty() ? std::nan("") : geometric_mean(there));
    }
    panels.push_back(std::move(panel));
  }
  if (panels.empty()) {
    return {
        .why_not =
            "no layer has rows of int8 and of f32 with the same setting; measure both, int8 with "
            "--types"};
  }
  for (BarPanel& panel : panels) {  // one scale for all
    panel.x.include = {extent.low, extent.high};
    figure.panels.emplace_back(std::move(panel));
  }
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    figure.legend.push_back(
        {.name = kinds[k].name, .style = static_cast<int>(k), .form = LegendEntry::Form::bar});
  }
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("int8", {.summary = "time of f32 / time of int8, layer by layer",
                                 .order = 125,
                                 .draw_bench = convscope::draw_int8})
