// SPDX-License-Identifier: Apache-2.0
// memory_plot.cpp: memory of a training step, as counted by the framework's allocator.
#include <cmath>

#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

struct Quantity {
  const char* name;
  double RunSummary::*mib;
};
constexpr Quantity kQuantities[] = {
    {"forward: allocated at its end", &RunSummary::avg_forward_mem},
    {"backward: peak", &RunSummary::avg_backward_mem},
    {"scratch: peak of any step", &RunSummary::peak_workspace},
};

Plot draw_memory(const RunPart& part) {
  Plot plot;
  std::vector<const RunGroup*> groups;  // groups that are drawn
  Figure figure{.title = "Memory of a training step"};
  BarPanel panel{.x = {.label = "memory (MiB)"}};
  figure.data = {{"config"}};
  for (const Quantity& quantity : kQuantities) {
    figure.legend.push_back({.name = quantity.name,
                             .style = static_cast<int>(panel.series.size()),
                             .form = LegendEntry::Form::bar});
    panel.series.push_back({.name = quantity.name});
    figure.data[0].push_back(cat(quantity.name, " (MiB)"));
  }
  for (const PartMember& member : part.members) {
    const RunGroup& group = *member.group;
    std::vector<std::string> row = {name_with_count(group)};
    std::vector<Spread> spreads;
    for (const Quantity& quantity : kQuantities) {
      spreads.push_back(group.summary_spread([&](const RunSummary& summary) {
        return summary.timed_steps > 0 ? summary.*quantity.mib : std::nan("");
      }));
      row.push_back(spread_text(spreads.back()));
    }
    if (spreads[0].count == 0) {
      plot.remarks.push_back(
          cat(group.label, " is left out, because none of its steps was measured"));
      continue;
    }
    groups.push_back(&group);
    panel.categories.push_back(row[0]);
    if (part.members.size() > 1) panel.category_styles.push_back(member.style);
    for (std::size_t i = 0; i < spreads.size(); ++i) {
      panel.series[i].values.push_back(spreads[i].mean);
      panel.series[i].std.push_back(spreads[i].std);
    }
    figure.data.push_back(std::move(row));
  }
  if (panel.categories.empty()) return {.why_not = "no run has measured a step"};
  figure.panels.emplace_back(std::move(panel));
  figure.notes = {
      "backward: parameters, gradients, optimiser state, activations and scratch; the "
      "data sets are not counted"};
  return finished(std::move(figure), groups, std::move(plot.remarks));
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("memory", {.summary = "memory of a step's forward and backward",
                                   .order = 40,
                                   .draw = convscope::draw_by_part(convscope::by_data_set_and_batch,
                                                                   convscope::draw_memory)})
