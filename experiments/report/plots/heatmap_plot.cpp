// SPDX-License-Identifier: Apache-2.0
// heatmap_plot.cpp: problems by algorithms: time relative to the fastest, refusals, and the choice
// of `auto`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"

namespace convscope {
namespace {

constexpr double kWhiteFrom = 16;  // this multiple of the fastest time is white

std::string ratio_text(double ratio) {
  return ratio < 9.995  ? fmt::format("{:.2f}", ratio)
         : ratio < 99.5 ? fmt::format("{:.1f}", ratio)
                        : fmt::format("{:.0f}", ratio);
}

double shade_of(double ratio) {
  return std::clamp(1 - std::log(ratio) / std::log(kWhiteFrom), 0.0, 1.0);
}

HeatCell timed(double ratio, double ms, const std::string& title) {
  HeatCell cell{.text = ratio_text(ratio)};
  cell.shade = shade_of(ratio);
  cell.title = cat(title, ": ", number_text(ms, 4), " ms, ", cell.text, " times the fastest");
  return cell;
}

HeatCell cell_of(const BenchSet& set, const BenchPart& part, std::size_t problem,
                 const std::string& algorithm) {
  const std::string title = cat(algorithm, ", ", set.problems[problem].text());
  const BenchedRow* row = set.find(part, problem, algorithm);
  if (row == nullptr) {
    const BenchedRefusal* refusal = set.find_refusal(part, problem, algorithm);
    HeatCell cell{.text = refusal == nullptr ? "-" : "refused", .shade = std::nan("")};
    cell.title = title + (refusal == nullptr ? ": not measured" : ": refused: " + refusal->reason);
    return cell;
  }
  HeatCell cell;
  if (row->median_ms > 0) {
    cell = timed(row->median_ms / set.fastest(part, problem)->median_ms, row->median_ms, title);
  } else {
    cell = {.text = "wrong", .shade = std::nan(""), .title = cat(title, ": ", row->wrong)};
  }
  cell.framed = row->auto_choice;
  if (cell.framed) cell.title += "; auto chooses it";
  return cell;
}

// Returns a cell with the baseline's time divided by the time of Convscope's fastest algorithm.
// Below 1, the baseline is faster than every algorithm.
HeatCell baseline_cell(const BenchSet& set, const BenchPart& part, std::size_t problem,
                       const std::string& baseline) {
  const BenchedRow* best = set.fastest(part, problem);
  if (best == nullptr || !(best->baseline_median_ms > 0)) {
    return {.text = "-", .shade = std::nan(""), .title = baseline + ": not measured"};
  }
  return timed(best->baseline_median_ms / best->median_ms, best->baseline_median_ms,
               cat(baseline, ", ", set.problems[problem].text()));
}

// Returns the measured algorithms in the order of `algorithms`. Adds the names of algorithms that
// refuse all problems of the panel to `refusing`.
std::vector<std::string> heatmap_columns(const BenchSet& set, const BenchPart& part,
                                         const std::vector<std::string>& algorithms,
                                         std::vector<std::string>& refusing) {
  std::vector<std::string> columns;
  for (const std::string& name : algorithms) {
    const auto measured = [&](std::size_t problem) {
      return set.find(part, problem, name) != nullptr;
    };
    const auto refuses = [&](std::size_t problem) {
      return set.find_refusal(part, problem, name) != nullptr;
    };
    if (std::ranges::any_of(part.problems, measured)) {
      columns.push_back(name);
    } else if (std::ranges::any_of(part.problems, refuses)) {
      refusing.push_back(name);
    }
  }
  return columns;
}

Plot draw_heatmap(const BenchSet& set) {
  Plot plot;
  const std::string baseline = set.baseline(), library = baseline.substr(0, baseline.find(' '));
  std::vector<std::string> algorithms = set.algorithms();
  const std::size_t measured = algorithms.size();
  for (const BenchedRefusal& refusal : set.refusals) {
    const std::string& name = refusal.algorithm;
    const bool ours = name != "all" && (baseline.empty() || !name.starts_with(library));
    if (ours && std::ranges::find(algorithms, name) == algorithms.end()) algorithms.push_back(name);
  }
  Figure figure{.title = "Time of each algorithm relative to the fastest", .subtitle = set.text()};
  figure.data = {{"direction", "measured with", "problem"}};
  for (std::size_t i = 0; i < measured; ++i) figure.data[0].push_back(algorithms[i]);
  if (!baseline.empty()) figure.data[0].push_back(baseline);
  std::size_t choices = 0, right = 0;
  for (const BenchPart& part : set.parts()) {
    HeatPanel panel{.title = part.title};
    std::vector<std::string> refusing;
    panel.columns = heatmap_columns(set, part, algorithms, refusing);
    for (const std::string& name : panel.columns) {
      panel.column_styles.push_back(algorithm_style(name));
    }
    const std::vector<std::string> shown = panel.columns;
    if (!baseline.empty()) panel.columns.push_back(baseline + " (baseline)");
    for (const std::size_t problem : part.problems) {
      panel.rows.push_back(set.names[problem]);
      panel.cells.emplace_back();
      for (const std::string& algorithm : shown) {
        panel.cells.back().push_back(cell_of(set, part, problem, algorithm));
        const BenchedRow* row = set.find(part, problem, algorithm);
        if (row != nullptr && row->auto_choice && row->median_ms > 0) {
          ++choices;
          if (row->median_ms <= 1.1 * set.fastest(part, problem)->median_ms) ++right;
        }
      }
      if (!baseline.empty())
        panel.cells.back().push_back(baseline_cell(set, part, problem, baseline));
      figure.data.push_back({std::string(name_of(part.direction)), set.settings[part.setting].label,
                             set.problems[problem].text()});
      for (std::size_t i = 0; i < measured; ++i) {
        const HeatCell cell = cell_of(set, part, problem, algorithms[i]);
        figure.data.back().push_back(cell.text + (cell.framed ? " *" : ""));
      }
      if (!baseline.empty()) figure.data.back().push_back(panel.cells.back().back().text);
    }
    for (double ratio = kWhiteFrom; ratio >= 1; ratio /= 2) {
      panel.scale.emplace_back(shade_of(ratio),
                               cat(ratio == kWhiteFrom ? "\u2265" : "", number_text(ratio, 3)));
    }
    panel.scale_label = "time / time of the fastest";
    if (!refusing.empty()) {
      panel.note =
          cat("not in the table, because ", refusing.size() == 1 ? "it refuses" : "they refuse",
              part.problems.size() == 1 ? " this problem: " : " all of these problems: ",
              join(refusing));
    }
    figure.panels.emplace_back(std::move(panel));
  }
  figure.notes = {
      "time relative to our fastest (1.00); refused (r in narrow cells): the algorithm does not "
      "accept the problem; -: not measured"};
  if (choices > 0) {
    figure.notes.push_back(cat("framed: what `auto` chooses; ", right, " of ", choices,
                               " choices are within 10 % of the fastest"));
  }
  if (!baseline.empty()) {
    figure.notes.push_back(
        cat(baseline,
            ": its fastest variant, in its own layouts; below 1 it is faster than all of ours"));
  }
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("heatmap", {.summary = "time of each algorithm on each problem; refusals",
                                    .order = 100,
                                    .draw_bench = convscope::draw_heatmap})
