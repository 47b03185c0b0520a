// SPDX-License-Identifier: Apache-2.0
// curves_plot.cpp: loss and accuracy over the epochs. With one config, train, validation and test
// are in one panel. With several configs, there is a panel per split and a line per config. With
// many configs, each has a small panel, which shows all other configs in grey.
#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

constexpr std::size_t kInOnePanel = 8;   // more lines cannot be distinguished
constexpr std::size_t kMaxPoints = 600;  // per line of single steps; more are averaged

const std::vector<std::string> kSplits = {"train", "val", "test"};

AxisSpec loss_axis() { return {.label = "loss", .log = true, .least_ratio = 1.05}; }
AxisSpec accuracy_axis() {
  return {.label = "accuracy (%)", .least_span = 2, .lowest = 0, .highest = 100};
}
AxisSpec iou_axis() {
  return {.label = "mean IoU (%)", .least_span = 2, .lowest = 0, .highest = 100};
}
AxisSpec epoch_axis() { return {.label = "epoch", .whole_numbers = true}; }

// Returns a column of epochs.csv as a series over the epochs: the mean of the group's runs, with a
// band for their deviation.
Series epoch_series(const RunGroup& group, const std::string& column) {
  std::map<double, std::vector<double>> by_epoch;
  for (const RunData& run : group.runs) {
    for (std::size_t row = 0; row < run.epochs.rows.size(); ++row) {
      const double epoch = run.epochs.number(row, "epoch");
      const double value = run.epochs.number(row, column);
      if (std::isfinite(epoch) && std::isfinite(value)) by_epoch[epoch].push_back(value);
    }
  }
  Series s;
  s.name = name_with_count(group);
  for (const auto& [epoch, values] : by_epoch) {
    const Spread spread = spread_of(values);
    s.x.push_back(epoch);
    s.y.push_back(spread.mean);
    s.titles.push_back(cat(s.name, ", epoch ", epoch, ": ", spread_text(spread)));
    if (group.runs.size() > 1) {
      s.low.push_back(spread.mean - spread.std);
      s.high.push_back(spread.mean + spread.std);
    }
  }
  return s;
}

// Returns the training loss or accuracy of one run from metrics.jsonl, which has several values per
// epoch.
Series step_series(const RunData& run, double steps_per_unit, bool accuracy) {
  Series s;
  s.marks = false;
  const std::size_t bin =
      std::max<std::size_t>(1, (run.train.size() + kMaxPoints - 1) / kMaxPoints);
  for (std::size_t from = 0; from < run.train.size(); from += bin) {
    double x = 0, y = 0, count = 0;
    for (std::size_t i = from; i < std::min(from + bin, run.train.size()); ++i) {
      x += run.train[i].step / steps_per_unit;
      y += accuracy ? run.train[i].accuracy : run.train[i].loss;
      ++count;
    }
    s.x.push_back(x / count);
    s.y.push_back(y / count);  // NaN stays NaN: a gap
  }
  return s;
}

Figure one_group_figure(const RunGroup& group) {
  const RunData& run = group.runs[0];
  const bool single = group.runs.size() == 1 && !run.train.empty();
  const double per_epoch = run.steps_per_epoch();
  Figure figure{.title = "Training curves", .columns = 2};
  for (const bool accuracy : {false, true}) {
    LinePanel panel{.title = accuracy ? "Accuracy" : "Loss",
                    .x = per_epoch > 0 ? epoch_axis() : AxisSpec{.label = "training step"},
                    .y = accuracy ? accuracy_axis() : loss_axis(),
                    .end_labels = true,
                    .height = 320};
    for (std::size_t i = 0; i < kSplits.size(); ++i) {
      Series s = single && i == 0 ? step_series(run, per_epoch > 0 ? per_epoch : 1, accuracy)
                                  : epoch_series(group, kSplits[i] + (accuracy ? "_acc" : "_loss"));
      s.name = kSplits[i];
      s.style = static_cast<int>(i);
      if (!s.x.empty()) panel.series.push_back(std::move(s));
    }
    figure.panels.emplace_back(std::move(panel));
  }
  if (Series s = epoch_series(group, "test_iou"); !s.x.empty()) {
    s.style = 2;  // as in the panels of the test images
    figure.panels.emplace_back(LinePanel{.title = "Mean IoU of the test images",
                                         .x = epoch_axis(),
                                         .y = iou_axis(),
                                         .series = {std::move(s)},
                                         .height = 320});
  }
  if (single) {
    figure.notes.push_back(
        "train: mean over the steps since the last point, while the weights change; val, test: "
        "after the epoch");
  }
  return figure;
}

bool has_column(const std::vector<const RunGroup*>& groups, const std::string& column) {
  return std::any_of(groups.begin(), groups.end(), [&](const RunGroup* group) {
    return !epoch_series(*group, column).x.empty();
  });
}

Figure several_groups_figure(const std::vector<PartMember>& members) {
  const std::vector<const RunGroup*> groups = groups_of(members);
  std::vector<std::string> splits;
  for (const std::string& split : kSplits) {
    if (has_column(groups, split + "_loss")) splits.push_back(split);
  }
  Figure figure{.title = "Training curves", .columns = static_cast<int>(splits.size())};
  for (const bool accuracy : {false, true}) {
    for (const std::string& split : splits) {
      LinePanel panel{.title = cat(split, accuracy ? " accuracy" : " loss"),
                      .x = epoch_axis(),
                      .y = accuracy ? accuracy_axis() : loss_axis(),
                      .height = 300};
      for (std::size_t i = 0; i < groups.size(); ++i) {
        Series s = epoch_series(*groups[i], split + (accuracy ? "_acc" : "_loss"));
        s.style = members[i].style;
        panel.series.push_back(std::move(s));
      }
      figure.panels.emplace_back(std::move(panel));
    }
  }
  if (has_column(groups, "test_iou")) {
    LinePanel panel{.title = "test mean IoU", .x = epoch_axis(), .y = iou_axis(), .height = 300};
    for (std::size_t i = 0; i < groups.size(); ++i) {
      Series s = epoch_series(*groups[i], "test_iou");
      s.style = members[i].style;
      panel.series.push_back(std::move(s));
    }
    figure.panels.emplace_back(std::move(panel));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    figure.legend.push_back({.name = name_with_count(*groups[i]), .style = members[i].style});
  }
  return figure;
}

Figure many_groups_figure(const std::vector<const RunGroup*>& groups) {
  const std::string split = has_column(groups, "test_acc")  ? "test"
                            : has_column(groups, "val_acc") ? "val"
                                                            : "train";
  Figure figure{.title = "Training curves"};
  for (const bool accuracy : {true, false}) {
    const char* quantity = accuracy ? "_acc" : "_loss";
    Section section{.title = accuracy ? "Accuracy" : "Loss", .columns = 4};
    std::vector<Series> all;
    AxisSpec axis = accuracy ? accuracy_axis() : loss_axis();
    for (const RunGroup* group : groups) {
      all.push_back(epoch_series(*group, split + quantity));
      for (const std::string& drawn : {split, std::string("train")}) {
        const Series s = epoch_series(*group, drawn + quantity);
        for (const std::vector<double>* values : {&s.y, &s.low, &s.high}) {
          for (double value : *values) {
            if (value > 0) axis.include.push_back(value);  // a band may extend below 0
          }
        }
      }
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      LinePanel panel{.title = groups[i]->label, .x = epoch_axis(), .y = axis, .height = 190};
      for (Series other : all) {  // copies
        other.muted = true;
        panel.series.push_back(std::move(other));
      }
      Series train = epoch_series(*groups[i], std::string("train") + quantity);
      train.style = 1;
      train.marks = false;
      if (split != "train") panel.series.push_back(std::move(train));
      panel.series.push_back(all[i]);
      section.panels.emplace_back(std::move(panel));
    }
    section.legend = {{.name = split, .style = 0}};
    if (split != "train") section.legend.push_back({.name = "train", .style = 1});
    figure.sections.push_back(std::move(section));
  }
  figure.notes.push_back(cat(
      "grey: ", split, " of the other panels; all panels of a quantity have the ", "same axes"));
  return figure;
}

Plot draw_curves(const RunPart& part) {
  Plot plot;
  std::vector<PartMember> members;
  for (const PartMember& member : part.members) {
    const RunGroup& group = *member.group;
    const auto finished = [](const RunData& run) { return !run.epochs.empty(); };
    if (std::any_of(group.runs.begin(), group.runs.end(), finished)) {
      members.push_back(member);
    } else if (part.members.size() > 1) {
      plot.remarks.push_back(
          cat(group.label, " is left out, because it has not finished an epoch"));
    }
  }
  std::vector<const RunGroup*> groups = groups_of(members);
  const bool steps_only =
      groups.empty() && part.members.size() == 1 && !part.members[0].group->runs[0].train.empty();
  if (groups.empty() && !steps_only) {
    plot.why_not = "no run has finished an epoch";
    return plot;
  }
  plot.figure = steps_only                     ? one_group_figure(*part.members[0].group)
                : groups.size() == 1           ? one_group_figure(*groups[0])
                : groups.size() <= kInOnePanel ? several_groups_figure(members)
                                               : many_groups_figure(groups);
  if (steps_only) groups.push_back(part.members[0].group);
  Figure& figure = *plot.figure;
  figure.subtitle = runs_text(groups);
  if (const std::string note = spread_note(groups); !note.empty()) figure.notes.push_back(note);
  figure.data = {{"config", "epochs"}};
  for (const std::string& split : kSplits) {
    for (const char* quantity : {" loss", " accuracy (%)"}) {
      figure.data[0].push_back(split + quantity);
    }
  }
  for (const RunGroup* group : groups) {
    const auto last = [&](const std::string& column) {
      return spread_text(group->of([&](const RunData& run) {
        const std::size_t rows = run.epochs.rows.size();
        return rows == 0 ? std::nan("") : run.epochs.number(rows - 1, column);
      }));
    };
    std::vector<std::string> row = {name_with_count(*group), last("epoch")};
    for (const std::string& split : kSplits) {
      row.push_back(last(split + "_loss"));
      row.push_back(last(split + "_acc"));
    }
    figure.data.push_back(std::move(row));
  }
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("curves", {.summary = "loss and accuracy over the epochs",
                                   .order = 10,
                                   .draw = convscope::draw_by_part(convscope::by_data_set,
                                                                   convscope::draw_curves)})
