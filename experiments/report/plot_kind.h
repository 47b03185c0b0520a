// SPDX-License-Identifier: Apache-2.0
// plot_kind.h: registration of a kind of plot. A kind is one file, plots/<name>_plot.cpp, which
// registers itself in its last lines; `convscope plot` and every report.html use it:
//
//   Plot draw_memory(const RunSet& set) {
//     if (...) return {.why_not = "no run has finished a step"};
//     return {.figure = Figure{.title = "Memory", ...}};
//   }
//   CONVSCOPE_REGISTER_PLOT("memory", {.summary = "MiB of a training step",
//                                      .order = 40, .draw = draw_memory})
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/bench_data.h"
#include "experiments/report/chart/figure.h"
#include "experiments/report/ladder_data.h"
#include "experiments/report/run_groups.h"
#include "framework/registry.h"

namespace convscope {

struct Plot {
  std::optional<Figure> figure = {};      // none: see why_not
  std::string why_not = {};               // "no run has a sparsity.csv"
  std::vector<std::string> remarks = {};  // why groups were left out
};

// A kind of plot shows runs, benchmarks or ladders, so exactly one of the three functions is set.
struct PlotKind {
  std::string summary;  // one line for the help
  int order = 100;      // place on the page; small comes first
  std::function<Plot(const RunSet& set)> draw = {};
  std::function<Plot(const BenchSet& set)> draw_bench = {};
  std::function<Plot(const LadderSet& set)> draw_ladders = {};
};
CONVSCOPE_API Registry<PlotKind>& plot_kinds();
CONVSCOPE_API std::vector<std::string> plot_kind_names();  // by order

struct DrawnPlot {
  std::string kind;
  Figure figure;
  std::string svg;
};
struct DrawnPlots {
  std::vector<DrawnPlot> plots;
  std::vector<std::string> left_out;  // "sparsity: no run has a sparsity.csv"
};
// Draws the given kinds, or all kinds if none is given. An unknown kind is an error that names the
// nearest one. Kinds that need data other than `set` are left out.
CONVSCOPE_API DrawnPlots draw_plots(const RunSet& set, const std::vector<std::string>& kinds = {});
CONVSCOPE_API DrawnPlots draw_plots(const BenchSet& set,
                                    const std::vector<std::string>& kinds = {});
CONVSCOPE_API DrawnPlots draw_plots(const LadderSet& set,
                                    const std::vector<std::string>& kinds = {});

// Returns "lenet (n=3)". This function and the following ones are used by several kinds.
std::string name_with_count(const RunGroup& group);  // "lenet (n=3)"
// Returns "1.2 ± 0.1"; "-" for no value.
std::string spread_text(const Spread& spread);
// Returns a note on means, medians and error bars, or "" when each group is one run.
std::string spread_note(const std::vector<const RunGroup*>& groups);
// Returns name_with_count(). In figures of times, an asterisk marks a run during which other
// programs used the cores.
std::string name_with_load(const RunGroup& group);
// Returns the meaning of the asterisk; "" without one.
std::string load_note(const std::vector<const RunGroup*>& groups);
std::string runs_text(const std::vector<const RunGroup*>& groups);  // "4 configs, 9 runs"

}  // namespace convscope

#define CONVSCOPE_REGISTER_PLOT(name, ...)                                                 \
  namespace {                                                                              \
  const bool registered_plot = ::convscope::plot_kinds().add(name, __VA_ARGS__, __FILE__); \
  }
