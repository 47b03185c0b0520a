// SPDX-License-Identifier: Apache-2.0
// layers_plot.cpp: cost of each layer in a training step, in network order: time of forward and
// backward, and memory kept by forward. Layers that run as one kernel are one bar with all their
// names.
#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

constexpr std::size_t kAsBars = 3;  // more configs become dots

struct Quantity {
  const char* column;
  const char* name;
  const char* title;
  const char* label;
  bool is_time;
};
constexpr Quantity kQuantities[] = {
    {"forward_ms", "forward", "Forward", "time of a step's forward (ms)", true},
    {"backward_ms", "backward", "Backward", "time of a step's backward (ms)", true},
    {"kept_mib", "kept", "Memory kept", "memory kept for the backward (MiB)", false}};

struct TimedLayer {
  std::string name;                                         // "c1+r1+p1"
  double place = 0;                                         // of its first layer in the network
  std::vector<double> values[std::size(kQuantities)] = {};  // one per seed
};

bool is_measured(const CsvTable& table, std::size_t row) {
  return std::ranges::any_of(kQuantities, [&](const Quantity& quantity) {
    return std::isfinite(table.number(row, quantity.column));
  });
}

// Adds the measured rows of a run. If a row has no times because another row's kernel computes its
// layer (column `timed_with`), its name is added to the bar of that other row. A row with times,
// such as a quantiser's, is a separate bar.
void add_layers(const CsvTable& table, std::vector<TimedLayer>& layers) {
  std::map<std::string, std::string> names;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::string& layer = table.text(row, "layer");
    const std::string& with = table.text(row, "timed_with");
    if (with.empty() || with == layer || is_measured(table, row)) continue;
    names[with] += "+" + layer;
  }
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (!is_measured(table, row)) continue;
    const std::string name = table.text(row, "layer") + names[table.text(row, "layer")];
    auto at = std::ranges::find(layers, name, &TimedLayer::name);
    if (at == layers.end()) {
      at = layers.insert(layers.end(), {.name = name, .place = static_cast<double>(row)});
    }
    for (std::size_t q = 0; q < std::size(kQuantities); ++q) {
      at->values[q].push_back(table.number(row, kQuantities[q].column));
    }
  }
}

std::vector<TimedLayer> layers_of(const RunGroup& group) {
  std::vector<TimedLayer> layers;
  for (const RunData& run : group.runs) add_layers(run.layers, layers);
  return layers;
}

std::vector<std::string> by_data_set_batch_and_model(const RunGroup& group) {
  std::vector<std::string> facts = by_data_set_and_batch(group);
  const auto& summary = group.runs[0].summary;
  if (summary && !summary->model.empty()) facts.push_back(summary->model);
  return facts;
}

Plot draw_layers(const RunPart& part) {
  Plot plot;
  std::vector<PartMember> members;
  std::vector<std::vector<TimedLayer>> timed;
  std::vector<std::pair<double, std::string>> order;
  bool any_table = false;
  for (const PartMember& member : part.members) {
    std::vector<TimedLayer> layers = layers_of(*member.group);
    const auto has_table = [](const RunData& run) { return !run.layers.empty(); };
    any_table = any_table || std::ranges::any_of(member.group->runs, has_table);
    if (layers.empty()) {
      plot.remarks.push_back(
          cat(member.group->label, " is left out, because its layers.csv has ",
              "no times of layers; a new, longer run writes them (log.layers: true)"));
      continue;
    }
    for (const TimedLayer& layer : layers) {
      if (std::ranges::find(order, layer.name, &std::pair<double, std::string>::second) ==
          order.end()) {
        order.emplace_back(layer.place, layer.name);
      }
    }
    members.push_back(member);
    timed.push_back(std::move(layers));
  }
  if (members.empty()) {
    return {.why_not = any_table ? "no layers.csv has times of layers (forward_ms, backward_ms); a "
                                   "new, longer run writes them (log.layers: true)"
                                 : "no run has a layers.csv"};
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, std::string>::first);
  const bool one = members.size() == 1;
  const std::vector<const RunGroup*> groups = groups_of(members);
  Figure figure{.title = "Time and memory of each layer", .columns = 2};
  figure.data = {
      {"config", "layer", "forward (ms)", "backward (ms)", "kept for the backward (MiB)"}};
  BarPanel panels[std::size(kQuantities)];
  for (std::size_t q = 0; q < std::size(kQuantities); ++q) {
    panels[q].title = kQuantities[q].title;
    panels[q].x.label = kQuantities[q].label;
    panels[q].dots = members.size() > kAsBars;
    for (const auto& each : order) panels[q].categories.push_back(each.second);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    std::vector<BarSeries> series(std::size(kQuantities));
    for (const auto& [place, name] : order) {
      const auto layer = std::ranges::find(timed[i], name, &TimedLayer::name);
      std::vector<std::string> row = {name_with_load(*members[i].group), name};
      for (std::size_t q = 0; q < std::size(kQuantities); ++q) {
        Spread spread =
            spread_of(layer == timed[i].end() ? std::vector<double>{} : layer->values[q]);
        if (kQuantities[q].is_time) spread = as_median(spread);
        series[q].values.push_back(spread.mean);
        series[q].std.push_back(spread.std);
        row.push_back(spread_text(spread));
      }
      figure.data.push_back(std::move(row));
    }
    for (std::size_t q = 0; q < std::size(kQuantities); ++q) {
      series[q].name = one ? kQuantities[q].name : name_with_load(*members[i].group);
      if (!one) series[q].style = members[i].style;
      panels[q].series.push_back(std::move(series[q]));
    }
    if (!one) {
      figure.legend.push_back(
          {.name = name_with_load(*members[i].group), .style = members[i].style});
    }
  }
  if (one) {  // forward and backward side by side, memory separate
    panels[0].title = load_note(groups).empty() ? "Time" : "Time*";
    panels[0].x.label = "time in a training step (ms)";
    panels[0].series.push_back(std::move(panels[1].series[0]));
    for (int k = 0; k < 2; ++k) {
      figure.legend.push_back(
          {.name = kQuantities[k].name, .style = k, .form = LegendEntry::Form::bar});
    }
    figure.panels = {std::move(panels[0]), std::move(panels[2])};
  } else {
    for (BarPanel& panel : panels) figure.panels.emplace_back(std::move(panel));
  }
  figure.notes = {
      "means over the steps that were sampled; layers joined by + run as one kernel and have one "
      "time; -: not measured"};
  return finished(std::move(figure), groups, std::move(plot.remarks), /*of_times=*/true);
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("layers",
                        {.summary = "time and memory of each layer of the network",
                         .order = 35,
                         .draw = convscope::draw_by_part(convscope::by_data_set_batch_and_model,
                                                         convscope::draw_layers)})
