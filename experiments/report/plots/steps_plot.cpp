// SPDX-License-Identifier: Apache-2.0
// steps_plot.cpp: the quantisers' step sizes during training, from quant.csv; with one step size
// per channel, the mean over the channels and a band from the smallest to the largest.
#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxConfigs = 20;

const std::vector<std::string> kTensors = {"weight", "input", "shortcut"};

std::string text_of_cell(double value) { return value == 0 ? "-" : cat(value); }

// Returns for one run the mean over the channels and their range; for several runs the mean over
// the runs and their deviation.
Series step_sizes(const RunGroup& group, const std::string& layer, const std::string& tensor) {
  struct At {
    std::vector<double> mean, low, high;
  };
  std::map<double, At> by_step;
  double bits = 0;
  for (const RunData& run : group.runs) {
    const CsvTable& table = run.quant;
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      if (table.text(row, "layer") != layer || table.text(row, "tensor") != tensor) continue;
      At& at = by_step[table.number(row, "step")];
      at.mean.push_back(table.number(row, "step_size_mean"));
      at.low.push_back(table.number(row, "step_size_min"));
      at.high.push_back(table.number(row, "step_size_max"));
      bits = table.number(row, "bits");
    }
  }
  Series s{.name = layer};
  for (const auto& [step, at] : by_step) {
    const Spread spread = spread_of(at.mean);
    const bool one = at.mean.size() == 1;
    s.x.push_back(step);
    s.y.push_back(spread.mean);
    s.low.push_back(one ? at.low[0] : spread.mean - spread.std);
    s.high.push_back(one ? at.high[0] : spread.mean + spread.std);
    s.titles.push_back(cat(layer, " ", tensor, ", ", text_of_cell(bits), " bits, step ", step, ": ",
                           spread_text(spread)));
  }
  return s;
}

Plot draw_steps(const RunPart& part) {
  Plot plot;
  std::vector<const RunGroup*> groups;
  for (const PartMember& member : part.members) {
    const RunGroup& group = *member.group;
    const auto quantised = [](const RunData& run) { return !run.quant.empty(); };
    if (!std::any_of(group.runs.begin(), group.runs.end(), quantised)) continue;
    if (groups.size() < kMaxConfigs) {
      groups.push_back(&group);
    } else {
      plot.remarks.push_back(cat("only the first ", kMaxConfigs, " configs are drawn"));
      break;
    }
  }
  if (groups.empty()) return {.why_not = "no run has a quant.csv with a row"};
  const std::vector<std::string> layers = layers_in(groups, &RunData::quant);
  const bool one = groups.size() == 1;
  Figure figure{.title = "Step sizes of the quantisers", .columns = 2};
  figure.data = {{"config", "tensor"}};
  figure.data[0].insert(figure.data[0].end(), layers.begin(), layers.end());
  for (const RunGroup* group : groups) {
    for (const std::string& tensor : kTensors) {
      LinePanel panel{.title = one ? tensor + "s" : cat(group->label, ": ", tensor, "s"),
                      .x = {.label = "training step"},
                      .y = {.label = "step size", .log = true, .least_ratio = 2},
                      .series = {},
                      .end_labels = layers.size() <= 10,
                      .height = one ? 330 : 220};
      std::vector<std::string> row = {name_with_count(*group), tensor};
      for (std::size_t i = 0; i < layers.size(); ++i) {
        Series s = step_sizes(*group, layers[i], tensor);
        s.style = static_cast<int>(i);
        row.push_back(s.y.empty() ? "-" : cat(s.y.back()));
        if (!s.x.empty()) panel.series.push_back(std::move(s));
      }
      if (panel.series.empty() && tensor == "shortcut") continue;  // few networks have one
      figure.data.push_back(std::move(row));
      figure.panels.emplace_back(std::move(panel));
    }
  }
  for (std::size_t i = 0; layers.size() > 10 && i < layers.size(); ++i) {
    figure.legend.push_back({.name = layers[i], .style = static_cast<int>(i)});
  }
  figure.notes = {"band of a single run: smallest to largest step over the channels"};
  return finished(std::move(figure), groups, std::move(plot.remarks));
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("steps", {.summary = "step sizes of the quantisers over the steps",
                                  .order = 60,
                                  .draw = convscope::draw_by_part(convscope::by_data_set,
                                                                  convscope::draw_steps)})
