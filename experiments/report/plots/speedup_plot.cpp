// SPDX-License-Identifier: Apache-2.0
// speedup_plot.cpp: the baseline's time divided by Convscope's time, for the fastest algorithm and
// for the choice of `auto`.
#include <algorithm>
#include <cmath>

#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"

namespace convscope {
namespace {

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  int count = 0;
  for (const double value : values) {
    if (!(value > 0)) continue;
    sum += std::log(value);
    ++count;
  }
  return count == 0 ? std::nan("") : std::exp(sum / count);
}

const BenchedRow* auto_row(const BenchSet& set, const BenchPart& part, std::size_t problem) {
  for (const BenchedRow& row : set.rows) {
    if (row.setting == part.setting && row.direction == part.direction && row.problem == problem &&
        row.auto_choice && row.median_ms > 0) {
      return &row;
    }
  }
  return nullptr;
}

Plot draw_speedup(const BenchSet& set) {
  Plot plot;
  const std::string baseline = set.baseline();
  if (baseline.empty()) {
    return {.why_not = "no row has the time of a baseline; measure with --baseline"};
  }
  struct Kind {
    std::string name;
    bool chosen, plain;
  };
  const Kind kinds[] = {
      {cat("fastest of ours, ", baseline, " with its own layouts"), false, false},
      {cat("choice of `auto`, ", baseline, " with its own layouts"), true, false},
      {cat("fastest of ours, ", baseline, " with row-major tensors, as ours"), false, true}};
  Figure figure{.title = cat("Speed-up over ", baseline), .subtitle = set.text()};
  figure.data = {{"direction", "measured with", "problem", "algorithm",
                  cat("ratio to ", baseline, ", own layouts"),
                  cat("ratio to ", baseline, ", row-major"), "choice of auto"}};
  Extent extent;
  std::vector<BarPanel> panels;
  for (const BenchPart& part : set.parts()) {
    BarPanel panel{
        .title = part.title,
        .x = {.label = cat(baseline, "'s time / ours; above 1 ours is faster"), .log = true}};
    std::vector<std::size_t> problems;
    for (const std::size_t problem : part.problems) {
      const BenchedRow* best = set.fastest(part, problem);
      if (best == nullptr ||
          !(best->baseline_median_ms > 0 || best->baseline_plain_median_ms > 0)) {
        plot.remarks.push_back(cat(set.problems[problem].text(), " ", part.title,
                                   " is left out, because its fastest row has no time of ",
                                   baseline));
        continue;
      }
      problems.push_back(problem);
      panel.categories.push_back(set.names[problem]);
    }
    if (problems.empty()) continue;
    for (const Kind& kind : kinds) {
      BarSeries s{.name = kind.name};
      for (const std::size_t problem : problems) {
        const BenchedRow* row =
            kind.chosen ? auto_row(set, part, problem) : set.fastest(part, problem);
        const double theirs = row == nullptr ? std::nan("")
                              : kind.plain   ? row->baseline_plain_median_ms
                                             : row->baseline_median_ms;
        s.values.push_back(row == nullptr ? theirs : theirs / row->median_ms);
        s.notes.push_back(row == nullptr || kind.plain ? "" : row->algorithm);
        s.note_styles.push_back(s.notes.back().empty() ? -1 : algorithm_style(row->algorithm));
        extent.add(s.values.back());
      }
      s.values.push_back(geometric_mean(s.values));
      s.note_styles.push_back(-1);
      panel.series.push_back(std::move(s));
    }
    panel.categories.emplace_back("geometric mean");
    for (const std::size_t problem : problems) {
      for (const BenchedRow& row : set.rows) {
        if (row.setting != part.setting || row.direction != part.direction ||
            row.problem != problem || !(row.median_ms > 0)) {
          continue;
        }
        figure.data.push_back({std::string(name_of(part.direction)),
                               set.settings[part.setting].label, set.problems[problem].text(),
                               row.algorithm,
                               number_text(row.baseline_median_ms / row.median_ms, 4),
                               number_text(row.baseline_plain_median_ms / row.median_ms, 4),
                               row.auto_choice ? "yes" : ""});
      }
    }
    panels.push_back(std::move(panel));
  }
  if (panels.empty()) {
    return {.why_not = cat("no problem's fastest row has a time of ", baseline)};
  }
  for (BarPanel& panel : panels) {  // one scale for all
    panel.x.include = {extent.low, extent.high};
    figure.panels.emplace_back(std::move(panel));
  }
  for (int i = 0; i < 3; ++i) {
    figure.legend.push_back({.name = kinds[i].name, .style = i, .form = LegendEntry::Form::bar});
  }
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("speedup", {.summary = "ratio to the baseline's time",
                                    .order = 120,
                                    .draw_bench = convscope::draw_speedup})
