// SPDX-License-Identifier: Apache-2.0
// bars_plot.cpp: wall time of a training step's forward and backward.
#include <algorithm>
#include <cmath>

#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

Plot draw_bars(const RunPart& part) {
  struct Row {
    const RunGroup* group;
    int style;
    Spread forward, backward;
  };
  Plot plot;
  std::vector<const RunGroup*> groups;  // groups that are drawn
  std::vector<Row> rows;
  for (const PartMember& member : part.members) {
    const RunGroup& group = *member.group;
    const auto timed = [&](double RunSummary::*seconds) {
      return group.time_spread([&](const RunSummary& summary) {
        return summary.timed_steps > 0 ? summary.*seconds : std::nan("");
      });
    };
    const Row row{&group, member.style, timed(&RunSummary::avg_forward),
                  timed(&RunSummary::avg_backward)};
    if (row.forward.count > 0) {
      rows.push_back(row);
      groups.push_back(&group);
    } else {
      plot.remarks.push_back(cat(group.label, " is left out, because none of its steps was timed"));
    }
  }
  if (rows.empty()) return {.why_not = "no run has timed a step"};
  double largest = 0;
  for (const Row& row : rows) largest = std::max({largest, row.forward.mean, row.backward.mean});
  const bool milli = largest < 1, micro = largest < 1e-3;
  const double scale = micro ? 1e6 : milli ? 1e3 : 1;
  const char* unit = micro ? "\xC2\xB5s" : milli ? "ms" : "s";

  Figure figure{.title = "Time of a training step"};
  BarPanel panel{.x = {.label = cat("wall time of a step (", unit, ")")},
                 .series = {{.name = "forward (with loss)"}, {.name = "backward"}}};
  figure.data = {{"config", "batch", cat("forward (", unit, ")"), cat("backward (", unit, ")")}};
  for (Row& row : rows) {
    for (Spread* spread : {&row.forward, &row.backward}) {
      spread->mean *= scale;
      spread->std *= scale;
    }
    const Spread batch = row.group->summary_spread(
        [](const RunSummary& s) { return static_cast<double>(s.batch_size); });
    panel.categories.push_back(name_with_load(*row.group));
    if (rows.size() > 1) panel.category_styles.push_back(row.style);
    panel.series[0].values.push_back(row.forward.mean);
    panel.series[0].std.push_back(row.forward.std);
    panel.series[1].values.push_back(row.backward.mean);
    panel.series[1].std.push_back(row.backward.std);
    figure.data.push_back({name_with_load(*row.group), spread_text(batch), spread_text(row.forward),
                           spread_text(row.backward)});
  }
  for (int i = 0; i < 2; ++i) {
    figure.legend.push_back({.name = panel.series[static_cast<std::size_t>(i)].name,
                             .style = i,
                             .form = LegendEntry::Form::bar});
  }
  figure.panels.emplace_back(std::move(panel));
  return finished(std::move(figure), groups, std::move(plot.remarks), /*of_times=*/true);
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("bars", {.summary = "time of a step's forward and backward",
                                 .order = 30,
                                 .draw = convscope::draw_by_part(convscope::by_data_set_and_batch,
                                                                 convscope::draw_bars)})
