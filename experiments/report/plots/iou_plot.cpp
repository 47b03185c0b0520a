// SPDX-License-Identifier: Apache-2.0
// iou_plot.cpp: intersection over union of each class on the test images, and the mean.
#include <algorithm>
#include <cmath>

#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxClasses = 40;      // more rows could not be read
constexpr std::size_t kMaxGroupsAsBars = 4;  // more configs are drawn as dots

// Returns the class names of the group's first run; empty without a class for each pixel.
std::vector<std::string> classes_of(const RunGroup& group) {
  std::vector<std::string> out;
  const std::optional<RunSummary>& summary = group.runs[0].summary;
  if (!summary) return out;
  for (const auto& [name, iou] : summary->test_class_iou) out.push_back(name);
  return out;
}

// Returns the IoU of a class, or the mean over the classes after the last class.
Spread iou_of(const RunGroup& group, std::size_t k, std::size_t classes) {
  return group.summary_spread([&](const RunSummary& s) {
    if (k == classes) return s.test_iou.value_or(std::nan(""));
    return k < s.test_class_iou.size() ? s.test_class_iou[k].second.value_or(std::nan(""))
                                       : std::nan("");
  });
}

Plot draw_iou(const RunPart& part) {
  Plot plot;
  std::vector<const RunGroup*> groups;  // groups that are drawn
  Figure figure{.title = "Intersection over union on the test images"};
  BarPanel panel{.x = {.label = "IoU (%)", .from_zero = true, .highest = 100}};
  for (const PartMember& member : part.members) {
    const RunGroup& group = *member.group;
    const std::vector<std::string> classes = classes_of(group);
    if (classes.empty() || classes.size() > kMaxClasses) {
      plot.remarks.push_back(
          cat(group.label, " is left out, because it has ",
              classes.empty() ? "no IoU" : cat("more than ", kMaxClasses, " classes")));
      continue;
    }
    if (groups.empty()) {
      panel.categories = classes;
      panel.categories.emplace_back("mean");
      figure.data = {{"config"}};
      figure.data[0].insert(figure.data[0].end(), panel.categories.begin(), panel.categories.end());
    }
    groups.push_back(&group);
    BarSeries series{.name = name_with_count(group), .style = member.style};
    figure.data.push_back({series.name});
    for (std::size_t k = 0; k < panel.categories.size(); ++k) {
      const Spread iou = iou_of(group, k, classes.size());
      series.values.push_back(iou.mean);
      series.std.push_back(iou.std);
      figure.data.back().push_back(spread_text(iou));
    }
    panel.series.push_back(std::move(series));
  }
  if (groups.empty()) return {.why_not = "no run has a class for each pixel"};
  panel.dots = groups.size() > kMaxGroupsAsBars;
  for (BarSeries& series : panel.series) {
    if (groups.size() == 1) series.style = -1;
    figure.legend.push_back(
        {.name = series.name,
         .style = series.style,
         .form = panel.dots ? LegendEntry::Form::mark : LegendEntry::Form::bar});
  }
  if (groups.size() == 1) figure.legend.clear();
  figure.notes = {"right pixels of a class / pixels that have the class or are predicted as it"};
  figure.panels.emplace_back(std::move(panel));
  return finished(std::move(figure), groups, std::move(plot.remarks));
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("iou", {.summary = "intersection over union of each class",
                                .order = 16,
                                .draw = convscope::draw_by_part(convscope::by_data_set,
                                                                convscope::draw_iou)})
