// SPDX-License-Identifier: Apache-2.0
// scaling_plot.cpp: effective GFLOP/s over the number of threads, the batch or the kernel size, for
// rows that differ in nothing else.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxPanels = 36;
constexpr std::size_t kLeastForLine = 3;  // two points are always on a line

enum class Over { threads, batch, kernel };

double value_of(Over over, const BenchSetting& setting, const Conv2dProblem& problem) {
  return static_cast<double>(over == Over::threads ? setting.threads
                             : over == Over::batch ? problem.n
                                                   : problem.r);
}

// Returns a text that is equal for all rows of one line in the plot: they differ only in `over`. If
// `over` is the kernel size, the padding may differ too, because a larger kernel needs more padding
// for the same output size.
std::string rest_of(Over over, const BenchSetting& setting, BenchedProblem z) {
  std::string size = cat(z.r, "x", z.s);
  if (over == Over::batch) z.n = 0;
  if (over == Over::kernel) {
    size = cat(z.p(), "x", z.q(), z.r == z.s ? "" : " not square " + size);
  }
  const std::string types = z.types ? z.types->text() : std::string(name_of(z.dtype));
  const auto& deformable = z.deformable();
  // The text of a sparse problem (its cloud of sites) includes all sizes. So the rows of one line
  // have equal sizes and differ only in the number of threads.
  const std::string layer =
      z.cloud()    ? z.text()
      : deformable ? cat("deformable ", deformable->offset_groups, " ", deformable->mask)
      : z.transposed()
          ? cat("transposed ", z.transposed()->output_pad_h, "x", z.transposed()->output_pad_w)
          : "";
  return cat(
      layer, "|", types, "|", name_of(z.math), "|", z.weight_format.text(), "|", name_of(z.layout),
      "|", setting.device, "|", setting.isa, "|", setting.cpu, "|", setting.cache, "|",
      setting.clock, "|", setting.weights, "|", over == Over::threads ? 0 : setting.threads, "|",
      z.n, "|", z.c, "|", z.h, "|", z.w, "|", z.k, "|", size, "|", z.stride_h, "x", z.stride_w, "|",
      z.dilation_h, "x", z.dilation_w, "|", z.groups, "|",
      over == Over::kernel ? ""
                           : cat(z.pad_top, " ", z.pad_bottom, " ", z.pad_left, " ", z.pad_right));
}

// Rows of one panel: by algorithm, then by the x value.
struct Family {
  Direction direction;
  std::vector<const BenchedRow*> rows;
};

std::set<double> values_of(const BenchSet& set, const Family& family, Over over) {
  std::set<double> values;
  for (const BenchedRow* row : family.rows) {
    values.insert(value_of(over, set.settings[row->setting], set.problems[row->problem]));
  }
  return values;
}

std::vector<Family> families_of(const BenchSet& set, Over over) {
  std::map<std::string, std::size_t> places;
  std::vector<Family> all;
  for (const Direction direction : kDirections) {
    for (const BenchedRow& row : set.rows) {
      if (row.direction != direction || !(row.median_ms > 0)) continue;
      const std::string key =
          cat(name_of(direction), "|",
              rest_of(over, set.settings[row.setting], set.problems[row.problem]));
      const auto [at, added] = places.emplace(key, all.size());
      if (added) all.push_back({direction, {}});
      all[at->second].rows.push_back(&row);
    }
  }
  // A line needs at least two values of x.
  std::erase_if(all, [&](const Family& family) { return values_of(set, family, over).size() < 2; });
  return all;
}

std::string title_of(const BenchSet& set, const Family& family, Over over) {
  const BenchedRow& row = *family.rows[0];
  const Conv2dProblem& z = set.problems[row.problem];
  std::string direction(name_of(family.direction));
  std::ranges::replace(direction, '_', ' ');
  if (over == Over::threads) return cat(direction, ", ", set.names[row.problem]);
  std::string out = cat(direction, ", ");
  if (over == Over::kernel) out += cat("N=", z.n, " ");
  out += cat(z.c, "\u00D7", z.h, "\u00D7", z.w, " \u2192 ", z.k);
  if (over == Over::batch) out += cat(", ", z.r, "\u00D7", z.s);
  return cat(out, ", ", set.settings[row.setting].label);
}

LinePanel panel_of(const BenchSet& set, const Family& family, Over over,
                   const std::vector<std::string>& algorithms, Figure& figure) {
  const char* label = over == Over::threads ? "threads"
                      : over == Over::batch ? "batch N"
                                            : "kernel size R = S";
  LinePanel panel{.title = title_of(set, family, over),
                  .x = {.label = label, .log = over == Over::batch, .whole_numbers = true},
                  .y = {.label = "speed (GFLOP/s effective)", .from_zero = true},
                  .height = 250};
  double first = 0, last = 0, best_at_first = 0;
  for (std::size_t a = 0; a < algorithms.size(); ++a) {
    std::map<double, const BenchedRow*> points;
    for (const BenchedRow* row : family.rows) {
      if (row->algorithm != algorithms[a]) continue;
      points[value_of(over, set.settings[row->setting], set.problems[row->problem])] = row;
    }
    if (points.empty()) continue;
    Series s{.name = algorithms[a], .style = algorithm_style(algorithms[a])};
    s.line = points.size() >= kLeastForLine;
    for (const auto& [value, row] : points) {
      s.x.push_back(value);
      s.y.push_back(row->gflops_effective);
      s.titles.push_back(cat(algorithms[a], ", ", label, " ", number_text(value), ": ",
                             number_text(row->gflops_effective, 4), " GFLOP/s"));
      figure.data.push_back({panel.title, label, number_text(value), algorithms[a],
                             number_text(row->gflops_effective, 4),
                             number_text(row->median_ms, 4)});
      if (first == 0 || value < first) {
        first = value;
        best_at_first = 0;
      }
      if (value == first) best_at_first = std::max(best_at_first, row->gflops_effective);
      last = std::max(last, value);
    }
    panel.series.push_back(std::move(s));
  }
  if (over == Over::threads) {
    panel.series.push_back({.name = "ideal speed-up",
                            .x = {first, last},
                            .y = {best_at_first, best_at_first * last / first},
                            .marks = false,
                            .muted = true});
  }
  return panel;
}

Plot draw_scaling(const BenchSet& set) {
  Plot plot;
  Figure figure{.title = "Scaling", .subtitle = set.text(), .columns = 2};
  figure.data = {{"panel", "over", "value", "algorithm", "GFLOP/s effective", "median (ms)"}};
  const std::vector<std::string> algorithms = set.algorithms();
  std::size_t left_out = 0;
  bool threads = false, any_line = false;
  std::map<Over, std::set<double>> few;
  for (const Over over : {Over::threads, Over::batch, Over::kernel}) {
    for (const Family& family : families_of(set, over)) {
      if (figure.panels.size() == kMaxPanels) {
        ++left_out;
        continue;
      }
      threads = threads || over == Over::threads;
      const std::set<double> values = values_of(set, family, over);
      if (values.size() >= kLeastForLine) {
        any_line = true;
      } else {
        few[over].insert(values.begin(), values.end());
      }
      figure.panels.emplace_back(panel_of(set, family, over, algorithms, figure));
    }
  }
  if (figure.panels.empty()) {
    plot.why_not =
        "no two rows differ only in the number of threads, the batch or the kernel size; measure "
        "at least three (--threads N, --batch N, other files of shapes) and plot all files";
    return plot;
  }
  if (left_out > 0) {
    plot.remarks.push_back(
        cat(left_out, " panels are left out, because the page shows at most ", kMaxPanels));
  }
  for (std::size_t a = 0; a < algorithms.size(); ++a) {
    figure.legend.push_back({.name = algorithms[a],
                             .style = algorithm_style(algorithms[a]),
                             .form = any_line ? LegendEntry::Form::line : LegendEntry::Form::mark});
  }
  for (const auto& [over, values] : few) {
    std::vector<std::string> texts;
    for (const double value : values) texts.push_back(number_text(value));
    const char* what = over == Over::threads ? "numbers of threads"
                       : over == Over::batch ? "batches"
                                             : "kernel sizes";
    plot.remarks.push_back(cat("points without lines, because a line needs three ", what,
                               " of one problem, got ", join(texts, " and "),
                               "; measure another and plot all files"));
  }
  figure.notes = {"effective: FLOPs of the textbook loops, 2 N K P Q (C/G) R S"};
  if (threads) {
    figure.notes.emplace_back(
        "grey line: ideal speed-up of the algorithm that is fastest with the fewest threads");
  }
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("scaling", {.summary = "GFLOP/s over threads, batch and kernel size",
                                    .order = 140,
                                    .draw_bench = convscope::draw_scaling})
