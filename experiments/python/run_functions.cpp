// SPDX-License-Identifier: Apache-2.0
// run_functions.cpp: Python functions that return the table and the figures of run folders.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <set>

#include "experiments/python/arrays.h"
#include "experiments/python/functions.h"
#include "experiments/report/chart/figure.h"
#include "experiments/report/plot_kind.h"
#include "experiments/report/run_report.h"
#include "experiments/report/table/run_columns.h"
#include "experiments/run_folder/run_search.h"

namespace convscope::python {
namespace {

using Names = std::vector<std::string>;

Names run_folders(const Names& paths, const char* operation) {
  Names out;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    const Names found = find_runs(path);
    std::error_code error;
    if (found.empty()) {
      fail(ErrorKind::kIo, operation,
           cat("expected a run folder or a folder of runs, got ", path,
               std::filesystem::is_directory(path, error) ? ", which holds no run"
                                                          : ", which is not a folder"));
    }
    for (const std::string& run : found) {
      if (seen.insert(run).second) out.push_back(run);
    }
  }
  return out;
}

// Returns two things: JSON with every report column and every config key of the runs, and the list
// of unreadable runs.
std::pair<std::string, Names> runs_json(const Names& paths) {
  const nb::gil_scoped_release without_lock;
  Names remarks;
  std::vector<RunRow> rows;
  Names columns = all_columns();
  std::set<std::string> known(columns.begin(), columns.end());
  for (const std::string& run : run_folders(paths, "runs")) {
    rows.push_back(read_run_row(run));
    const std::string problem = read_config(rows.back());
    if (!problem.empty()) remarks.push_back(problem);
    for (const auto& [key, value] : rows.back().config) {
      if (known.insert(key).second) columns.push_back(key);
    }
  }
  return {to_json(run_table(rows, columns)), remarks};
}

std::pair<std::string, Names> report(const Names& paths, const std::string& format,
                                     const Names& columns, const Names& filters, const Names& group,
                                     const Names& tags, const std::string& sort, bool descending) {
  const nb::gil_scoped_release without_lock;
  RunReport made = run_report({.runs = paths,
                               .columns = columns,
                               .filters = filters,
                               .group = group,
                               .tags = tags,
                               .format = format,
                               .sort = sort,
                               .descending = descending,
                               .width = kAnyWidth});  // as the program in a pipe
  return {std::move(made.text), std::move(made.remarks)};
}

using Drawn = std::pair<std::vector<std::pair<std::string, std::string>>, Names>;

Drawn drawn(const DrawnPlots& plots, Names remarks, int width) {
  Drawn out{{}, std::move(remarks)};
  for (const DrawnPlot& plot : plots.plots) {
    Figure figure = plot.figure;
    if (width > 0) figure.width = width;
    out.first.emplace_back(plot.kind, width > 0 ? to_svg(figure) : plot.svg);
  }
  out.second.insert(out.second.end(), plots.left_out.begin(), plots.left_out.end());
  return out;
}

// Returns each figure as (kind, SVG), and for each figure that cannot be drawn the reason.
Drawn plots(const Names& paths, const Names& kinds, int width) {
  const nb::gil_scoped_release without_lock;
  for (const std::string& kind : kinds) plot_kinds().get(kind, ErrorKind::kInvalid);
  if (width != 0 && (width < kNarrowest || width > 4000)) {
    fail("plot", cat("expected width from ", kNarrowest, " to 4000 pixels, got ", width));
  }
  std::error_code error;
  const auto is_file = [&](const std::string& path) {
    return std::filesystem::is_regular_file(path, error);
  };
  const auto files = std::count_if(paths.begin(), paths.end(), is_file);
  if (files > 0 && static_cast<std::size_t>(files) != paths.size()) {
    fail("plot", "expected run folders or files of bench --json, got both");
  }
  if (files > 0 && is_ladder_file(paths[0])) {
    return drawn(draw_plots(read_ladders(paths), kinds), {}, width);
  }
  if (files > 0) {
    const BenchSet set = read_bench(paths);
    return drawn(draw_plots(set, kinds), set.remarks, width);
  }
  std::vector<RunData> runs;
  for (const std::string& run : run_folders(paths, "plot")) runs.push_back(read_run(run));
  const RunSet set = group_runs(std::move(runs));
  return drawn(draw_plots(set, kinds), set.remarks, width);
}

}  // namespace

void add_runs(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def("_runs_json", runs_json, "paths"_a);
  module.def("_report", report, "paths"_a, "format"_a, "columns"_a, "filters"_a, "group"_a,
             "tags"_a, "sort"_a, "descending"_a);
  module.def("_plots", plots, "paths"_a, "kinds"_a, "width"_a);
  module.def("plot_kinds", plot_kind_names, "The kinds of figures that plot() knows.");
}

}  // namespace convscope::python
