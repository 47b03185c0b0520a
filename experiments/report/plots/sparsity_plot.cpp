// SPDX-License-Identifier: Apache-2.0
// sparsity_plot.cpp: density of the weights, by layer at the end, and over time.
#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

constexpr std::size_t kAsBars = 3;  // more configs become dots
constexpr const char* kTotal = "total";

// Returns the percentage of a layer's weights that remain after the last change of the masks.
double last_density(const RunData& run, const std::string& layer) {
  for (std::size_t row = run.sparsity.rows.size(); row-- > 0;) {
    if (run.sparsity.text(row, "layer") == layer) return 100 * run.sparsity.number(row, "density");
  }
  return std::nan("");
}

double last_step(const RunData& run) {
  double step = 0;
  for (std::size_t row = 0; row < run.epochs.rows.size(); ++row) {
    step = std::max(step, run.epochs.number(row, "step"));
  }
  return step;
}

Series over_time(const RunGroup& group, const std::string& layer) {
  std::map<double, std::vector<double>> by_step;
  double end = 0;
  for (const RunData& run : group.runs) {
    for (std::size_t row = 0; row < run.sparsity.rows.size(); ++row) {
      if (run.sparsity.text(row, "layer") != layer) continue;
      by_step[run.sparsity.number(row, "step")].push_back(100 *
                                                          run.sparsity.number(row, "density"));
    }
    end = std::max(end, last_step(run));
  }
  Series s;
  s.stairs = true;  // masks stay as they are until they change
  for (const auto& [step, values] : by_step) {
    const Spread spread = spread_of(values);
    s.x.push_back(step);
    s.y.push_back(spread.mean);
    s.titles.push_back(cat(layer, ", step ", step, ": ", spread_text(spread), " %"));
  }
  if (!s.x.empty() && s.x.back() < end) {
    s.x.push_back(end);
    s.y.push_back(s.y.back());
  }
  return s;
}

Plot draw_sparsity(const RunPart& part) {
  std::vector<PartMember> members;
  for (const PartMember& member : part.members) {
    const auto pruned = [](const RunData& run) { return !run.sparsity.empty(); };
    if (std::ranges::any_of(member.group->runs, pruned)) members.push_back(member);
  }
  const std::vector<const RunGroup*> groups = groups_of(members);
  if (groups.empty()) return {.why_not = "no run has a sparsity.csv with a row"};
  const std::vector<std::string> layers = layers_in(groups, &RunData::sparsity);
  const bool one = groups.size() == 1;

  Figure figure{.title = "Density: weights that are not pruned"};
  BarPanel bars{
      .title = one ? "By layer, at the end" : "By layer and config, at the end",
      .x = {.label = "weights left (%)", .from_zero = true, .include = {100}, .highest = 100},
      .categories = layers,
      .series = {},
      .dots = groups.size() > kAsBars};
  LinePanel lines{
      .title = one ? "Over the steps, by layer" : "Over the steps, whole network",
      .x = {.label = "training step"},
      .y = {.label = "weights left (%)", .from_zero = true, .include = {100}, .highest = 100},
      .series = {},
      .end_labels = groups.size() <= 12,
      .height = 300};
  figure.data = {{"config"}};
  figure.data[0].insert(figure.data[0].end(), layers.begin(), layers.end());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const RunGroup& group = *groups[i];
    BarSeries series{.name = name_with_count(group), .values = {}, .std = {}};
    if (!one) series.style = members[i].style;
    std::vector<std::string> row = {series.name};
    for (const std::string& layer : layers) {
      const Spread spread = group.of([&](const RunData& run) { return last_density(run, layer); });
      series.values.push_back(spread.mean);
      series.std.push_back(spread.std);
      row.push_back(spread_text(spread));
    }
    figure.data.push_back(std::move(row));
    if (!one) {
      figure.legend.push_back(
          {.name = series.name, .style = members[i].style, .form = LegendEntry::Form::line});
      Series line = over_time(group, kTotal);
      line.name = group.label;
      line.style = members[i].style;
      lines.series.push_back(std::move(line));
    }
    bars.series.push_back(std::move(series));
  }
  for (std::size_t i = 0; one && i < layers.size(); ++i) {
    Series line = over_time(*groups[0], layers[i]);
    line.name = layers[i];
    line.style = static_cast<int>(i);
    lines.series.push_back(std::move(line));
  }
  figure.panels = {std::move(bars), std::move(lines)};
  return finished(std::move(figure), groups, {});
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("sparsity", {.summary = "density of each layer, at the end and over time",
                                     .order = 50,
                                     .draw = convscope::draw_by_part(convscope::by_data_set,
                                                                     convscope::draw_sparsity)})
