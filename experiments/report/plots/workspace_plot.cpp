// SPDX-License-Identifier: Apache-2.0
// workspace_plot.cpp: scratch memory of each algorithm on each problem, compared with the memory of
// the tensors.
#include <algorithm>
#include <cmath>

#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plot_kind.h"

namespace convscope {
namespace {

constexpr double kMebi = 1 << 20;

std::string mib_text(double bytes) {
  const double mib = bytes / kMebi;
  return bytes == 0 ? "0" : mib < 0.01 ? "<0.01" : measured_text(mib);
}

Plot draw_workspace(const BenchSet& set) {
  Plot plot;
  double largest = 0;
  bool any = false;
  for (const BenchedRow& row : set.rows) {
    any = any || row.workspace_bytes >= 0;
    if (row.workspace_bytes > largest) largest = row.workspace_bytes;
  }
  if (!any) return {.why_not = "no row has workspace_bytes"};
  constexpr double kWhite = 1024;  // this many bytes are still white
  const auto shade_of = [&](double bytes) {
    return bytes <= kWhite || largest <= kWhite
               ? 0
               : std::log(bytes / kWhite) / std::log(largest / kWhite);
  };
  const std::vector<std::string> algorithms = set.algorithms();
  Figure figure{.title = "Workspace of each algorithm (MiB)", .subtitle = set.text()};
  figure.data = {{"direction", "measured with", "problem", "tensors"}};
  for (const std::string& algorithm : algorithms) figure.data[0].push_back(algorithm);
  for (const BenchPart& part : set.parts()) {
    HeatPanel panel{.title = part.title, .columns = {"tensors"}};
    panel.columns.insert(panel.columns.end(), algorithms.begin(), algorithms.end());
    panel.column_styles = {-1};
    for (const std::string& name : algorithms) {
      panel.column_styles.push_back(algorithm_style(name));
    }
    for (const std::size_t problem : part.problems) {
      const std::string text = set.problems[problem].text();
      const double tensors = set.problems[problem].nominal_bytes();
      panel.rows.push_back(set.names[problem]);
      std::vector<HeatCell> cells = {
          {.text = mib_text(tensors), .title = cat("the three tensors, ", text)}};
      for (const std::string& algorithm : algorithms) {
        const BenchedRow* row = set.find(part, problem, algorithm);
        const double bytes = row == nullptr ? std::nan("") : row->workspace_bytes;
        HeatCell cell{.text = "-", .shade = std::nan("")};
        cell.title = cat(algorithm, ", ", text, ": ");
        if (bytes >= 0) {
          cell.text = mib_text(bytes);
          cell.shade = shade_of(bytes);
          cell.title += cat(number_text(bytes, 12), " bytes");
        } else {
          const BenchedRefusal* refusal = set.find_refusal(part, problem, algorithm);
          cell.title += refusal == nullptr ? "not measured" : "refused: " + refusal->reason;
        }
        cells.push_back(std::move(cell));
      }
      figure.data.push_back({std::string(name_of(part.direction)), set.settings[part.setting].label,
                             set.problems[problem].text()});
      for (const HeatCell& cell : cells) figure.data.back().push_back(cell.text);
      panel.cells.push_back(std::move(cells));
    }
    if (largest > kWhite) {
      const double middle = std::sqrt(kWhite * largest);
      for (const double bytes : {kWhite, middle, largest}) {
        const std::string text = bytes == kWhite ? "\u22640.001" : mib_text(bytes);
        panel.scale.emplace_back(shade_of(bytes), text);
      }
      panel.scale_label = "MiB, log scale";
    }
    figure.panels.emplace_back(std::move(panel));
  }
  figure.notes = {
      "scratch in addition to x, w and y; tensors: those three together; -: refused or not "
      "measured"};
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("workspace", {.summary = "scratch memory by algorithm and problem, MiB",
                                      .order = 130,
                                      .draw_bench = convscope::draw_workspace})
