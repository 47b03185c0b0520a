// SPDX-License-Identifier: Apache-2.0
// plot_kind.cpp: registration of a kind of plot.
#include "experiments/report/plot_kind.h"

#include <algorithm>
#include <cmath>

#include "experiments/operators/operator_table.h"
#include "experiments/report/chart/svg_text.h"

namespace convscope {

Registry<PlotKind>& plot_kinds() {
  static Registry<PlotKind> table("kind of plot");
  return table;
}

std::vector<std::string> plot_kind_names() {
  std::vector<std::string> names = plot_kinds().names();
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return plot_kinds().get(a).order < plot_kinds().get(b).order;
  });
  return names;
}

namespace {

std::string source_of(const PlotKind& kind) {
  if (kind.draw) return "run folders";
  return kind.draw_bench ? "files of " + operator_bench_commands()
                         : "files of `convscope bench conv2d --ladder NAME --json`";
}

template <typename Set>
DrawnPlots draw_from(const Set& set, std::function<Plot(const Set&)> PlotKind::*draw,
                     const std::vector<std::string>& kinds) {
  for (const std::string& kind : kinds) plot_kinds().get(kind, ErrorKind::kInvalid);
  DrawnPlots out;
  for (const std::string& kind : kinds.empty() ? plot_kind_names() : kinds) {
    const auto& draw_it = plot_kinds().get(kind).*draw;
    if (!draw_it) {
      if (!kinds.empty()) {
        out.left_out.push_back(cat(kind, ": it is drawn from ", source_of(plot_kinds().get(kind))));
      }
      continue;
    }
    Plot plot = draw_it(set);
    for (const std::string& remark : plot.remarks) out.left_out.push_back(kind + ": " + remark);
    if (!plot.figure) {
      out.left_out.push_back(kind + ": " + plot.why_not);
      continue;
    }
    std::string svg = to_svg(*plot.figure);
    out.plots.push_back({kind, std::move(*plot.figure), std::move(svg)});
  }
  return out;
}

}  // namespace

DrawnPlots draw_plots(const RunSet& set, const std::vector<std::string>& kinds) {
  return draw_from(set, &PlotKind::draw, kinds);
}

DrawnPlots draw_plots(const BenchSet& set, const std::vector<std::string>& kinds) {
  return draw_from(set, &PlotKind::draw_bench, kinds);
}

DrawnPlots draw_plots(const LadderSet& set, const std::vector<std::string>& kinds) {
  return draw_from(set, &PlotKind::draw_ladders, kinds);
}

std::string name_with_count(const RunGroup& group) {
  const std::size_t count = group.runs.size();
  return count < 2 ? group.label : cat(group.label, " (n=", count, ")");
}

std::string spread_text(const Spread& spread) {
  if (spread.count == 0) return "-";
  return spread.count < 2 ? number_text(spread.mean, 4) : measured_text(spread.mean, spread.std);
}

std::string spread_note(const std::vector<const RunGroup*>& groups) {
  const bool any = std::any_of(groups.begin(), groups.end(),
                               [](const RunGroup* group) { return group->runs.size() > 1; });
  return any ? "n: runs that differ only in the seed; their mean, and \xC2\xB1 one sample standard "
               "deviation as band or error bar; for times the median, and \xC2\xB1 the median "
               "distance from it"
             : "";
}

std::string name_with_load(const RunGroup& group) {
  return name_with_count(group) + (group.disturbed() > 0 ? "*" : "");
}

std::string load_note(const std::vector<const RunGroup*>& groups) {
  std::size_t disturbed = 0, runs = 0;
  for (const RunGroup* group : groups) {
    disturbed += group->disturbed();
    runs += group->runs.size();
  }
  if (disturbed == 0) return "";
  return cat("*: other programs used the cores in ", disturbed, " of ", runs,
             runs == 1 ? " run" : " runs", ", whose times may be too long");
}

std::string runs_text(const std::vector<const RunGroup*>& groups) {
  std::size_t runs = 0;
  for (const RunGroup* group : groups) runs += group->runs.size();
  if (groups.size() == 1) return name_with_count(*groups[0]);
  return cat(groups.size(), " configs, ", runs, " runs");
}

}  // namespace convscope
