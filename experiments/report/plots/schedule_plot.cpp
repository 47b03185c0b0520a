// SPDX-License-Identifier: Apache-2.0
// schedule_plot.cpp: learning rate and training speed over the steps.
#include <algorithm>
#include <cmath>

#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxPoints = 400;  // per line
constexpr std::size_t kMaxLines = 8;

// Draws only the group's first run: all seeds have the same schedule, and a mean of speeds could
// mix different machines.
Series series_of(const RunGroup& group, double TrainPoint::*value) {
  const std::vector<TrainPoint>& points = group.runs[0].train;
  Series s{.name = group.label};
  s.marks = false;
  const std::size_t stride = points.size() / kMaxPoints + 1;
  for (std::size_t i = 0; i < points.size(); i += stride) {
    s.x.push_back(points[i].step);
    s.y.push_back(points[i].*value);
  }
  return s;
}

Plot draw_schedule(const RunPart& part) {
  Plot plot;
  std::vector<const RunGroup*> groups;  // groups that are drawn
  LinePanel rate{.title = "Learning rate",
                 .x = {.label = "training step"},
                 .y = {.label = "learning rate", .from_zero = true}};
  LinePanel speed{.title = "Speed",
                  .x = {.label = "training step"},
                  .y = {.label = "speed (training images/s)", .from_zero = true}};
  Figure figure{.title = "Learning rate and speed", .columns = 2};
  figure.data = {{"config", "last step", "last learning rate", "images/s"}};
  for (const PartMember& member : part.members) {
    const RunGroup& group = *member.group;
    if (group.runs[0].train.empty()) {
      plot.remarks.push_back(cat(group.label, " is left out, because it has logged no step"));
      continue;
    }
    if (rate.series.size() == kMaxLines) {
      plot.remarks.push_back(cat("only the first ", kMaxLines, " configs are drawn"));
      break;
    }
    groups.push_back(&group);
    const int style = member.style;
    for (LinePanel* panel : {&rate, &speed}) {
      panel->series.push_back(series_of(
          group, panel == &rate ? &TrainPoint::learning_rate : &TrainPoint::images_per_s));
      panel->series.back().style = style;
      panel->series.back().marks = part.members.size() > 1;
    }
    figure.legend.push_back({.name = group.label, .style = style});
    const TrainPoint& last = group.runs[0].train.back();
    figure.data.push_back(
        {group.label, cat(last.step), cat(last.learning_rate), cat(last.images_per_s)});
  }
  if (rate.series.empty()) return {.why_not = "no run has logged a step"};
  if (part.members.size() == 1) figure.legend.clear();
  figure.notes = {"speed: mean since the epoch began; first seed of each config"};
  figure.panels = {std::move(rate), std::move(speed)};
  figure.subtitle = runs_text(groups);
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("schedule", {.summary = "learning rate and images/s over the steps",
                                     .order = 70,
                                     .draw = convscope::draw_by_part(convscope::by_data_set,
                                                                     convscope::draw_schedule)})
