// SPDX-License-Identifier: Apache-2.0
// pareto_plot.cpp: accuracy against cost: time of inference and of a training step per image, bytes
// of the stored parameters, and nominal bytes. For a quantised or sparse run, the stored bytes are
// the size of the model file. The nominal bytes are what the unpruned weights would need if each
// took only its quantised bits. The two sizes are separate panels, because nominal bytes are only a
// possible saving.
#include <algorithm>
#include <cmath>

#include "experiments/report/plots/run_parts.h"
#include "experiments/report/weight_size.h"

namespace convscope {
namespace {

struct Point {
  PartMember member;
  Spread accuracy, cost;
};

// Returns the Pareto front, from cheap to expensive: the points that no other point beats in both
// cost and accuracy.
std::vector<const Point*> front_of(const std::vector<Point>& points) {
  std::vector<const Point*> sorted;
  for (const Point& point : points) sorted.push_back(&point);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Point* a, const Point* b) {
    return a->cost.mean != b->cost.mean ? a->cost.mean < b->cost.mean
                                        : a->accuracy.mean > b->accuracy.mean;
  });
  std::vector<const Point*> front;
  for (const Point* point : sorted) {
    if (front.empty() || point->accuracy.mean > front.back()->accuracy.mean) {
      front.push_back(point);
    }
  }
  return front;
}

LinePanel panel_of(const std::string& title, const std::string& unit,
                   const std::vector<Point>& points, const char* accuracy, bool hollow) {
  LinePanel panel{.title = title,
                  .x = {.label = unit, .log = true, .least_ratio = 2},
                  .y = {.label = accuracy, .least_span = 2, .lowest = 0, .highest = 100},
                  .height = 330};
  Series front{.name = "Pareto front", .style = 7, .marks = false};
  for (const Point* point : front_of(points)) {
    front.x.push_back(point->cost.mean);
    front.y.push_back(point->accuracy.mean);
  }
  panel.series.push_back(std::move(front));
  for (const Point& point : points) {
    const RunGroup& group = *point.member.group;
    Series s{.name = group.label, .style = point.member.style, .line = false};
    s.hollow = hollow;
    s.x = {point.cost.mean};
    s.y = {point.accuracy.mean};
    if (point.accuracy.std > 0) {
      s.low = {point.accuracy.mean - point.accuracy.std};
      s.high = {point.accuracy.mean + point.accuracy.std};
    }
    if (point.cost.std > 0) {
      s.x_low = {point.cost.mean - point.cost.std};
      s.x_high = {point.cost.mean + point.cost.std};
    }
    s.tags = {std::to_string(point.member.number)};
    s.titles = {cat(name_with_count(group), ": ", spread_text(point.accuracy), " %, ",
                    spread_text(point.cost), " ", unit)};
    panel.series.push_back(std::move(s));
  }
  return panel;
}

struct Costs {
  Spread accuracy, inference_us, time_us, stored_kib, nominal_kib;
};

bool has_test(const RunGroup& group) {
  return group.summary_spread([](const RunSummary& s) { return s.acc.value_or(std::nan("")); })
             .count > 0;
}

// Accuracies on different images cannot be compared.
std::vector<std::string> by_data_set_and_split(const RunGroup& group) {
  std::vector<std::string> facts = by_data_set(group);
  if (!has_test(group)) facts.emplace_back("validation images");
  return facts;
}

Costs costs_of(const RunGroup& group) {
  Costs costs;
  costs.accuracy = group.summary_spread(
      [](const RunSummary& s) { return s.acc.value_or(s.val_acc.value_or(std::nan(""))); });
  costs.inference_us = group.time_spread([](const RunSummary& s) {
    return s.batch_size > 0
               ? 1e6 * s.avg_inference.value_or(std::nan("")) / static_cast<double>(s.batch_size)
               : std::nan("");
  });
  costs.time_us = group.time_spread([](const RunSummary& s) {
    return s.timed_steps > 0 && s.batch_size > 0
               ? 1e6 * (s.avg_forward + s.avg_backward) / static_cast<double>(s.batch_size)
               : std::nan("");
  });
  costs.stored_kib =
      group.of([](const RunData& run) { return weight_size(run).stored_bytes / 1024; });
  costs.nominal_kib =
      group.of([](const RunData& run) { return weight_size(run).nominal_bytes / 1024; });
  return costs;
}

Plot draw_pareto(const RunPart& part) {
  Plot plot;
  std::vector<const RunGroup*> groups;  // groups that are drawn
  std::vector<Point> inference, time, stored, nominal;
  const bool knows_inference = std::ranges::any_of(part.members, [](const PartMember& member) {
    return costs_of(*member.group).inference_us.count > 0;
  });
  Figure figure{.title = "Accuracy against cost", .columns = 2};
  figure.data = {{"no.", "config", "accuracy (%)", "time of a step per image (\xC2\xB5s)",
                  "size as stored (KiB)", "nominal size (KiB)"}};
  if (knows_inference) figure.data[0].push_back("time of inference per image (\xC2\xB5s)");
  LegendPanel key{.title = "Configs", .entries = {}};
  const char* accuracy = "accuracy (%)";
  for (const PartMember& member : part.members) {
    const RunGroup& group = *member.group;
    accuracy = has_test(group) ? "test accuracy (%)" : "validation accuracy (%)";
    const Costs costs = costs_of(group);
    if (costs.accuracy.count == 0) {
      plot.remarks.push_back(
          cat(group.label, " is left out, because its accuracy was never measured"));
      continue;
    }
    const auto add = [&](std::vector<Point>& points, const Spread& cost, const char* what) {
      if (cost.count > 0 && cost.mean > 0) {
        points.push_back({member, costs.accuracy, cost});
      } else {
        plot.remarks.push_back(cat(group.label, " has no ", what));
      }
    };
    if (knows_inference) add(inference, costs.inference_us, "time of inference");
    add(time, costs.time_us, "time of a step");
    add(stored, costs.stored_kib, "size, because it has no checkpoint");
    add(nominal, costs.nominal_kib,
        "nominal size, because it has no checkpoint, or quant: without a quant.csv");
    groups.push_back(&group);
    const std::string number = std::to_string(member.number);
    key.entries.push_back({.name = name_with_load(group),
                           .style = member.style,
                           .form = LegendEntry::Form::mark,
                           .tag = number});
    figure.data.push_back({number, name_with_load(group), spread_text(costs.accuracy),
                           spread_text(costs.time_us), spread_text(costs.stored_kib),
                           spread_text(costs.nominal_kib)});
    if (knows_inference) figure.data.back().push_back(spread_text(costs.inference_us));
  }
  if (key.entries.size() < 2) {
    return {
        .why_not =
            "expected at least two configs with a measured accuracy on the same data to compare"};
  }
  LinePanel size = panel_of("Size as stored", "parameters (KiB)", stored, accuracy, false);
  LinePanel wish = panel_of("Nominal size: bits of the weights, without positions of zeros",
                            "bits of the kept weights (KiB)", nominal, accuracy, true);
  for (const auto* points : {&stored, &nominal}) {  // one scale for both
    for (const Point& point : *points) {
      size.x.include.push_back(point.cost.mean);
      wish.x.include.push_back(point.cost.mean);
    }
  }
  key.entries.push_back({.name = "Pareto front: joins configs that no other config beats in both",
                         .style = 7,
                         .form = LegendEntry::Form::plain_line});
  LinePanel step =
      panel_of("Time of a training step", "forward and backward per training image (\xC2\xB5s)",
               time, accuracy, false);
  if (knows_inference) {
    figure.panels = {panel_of("Time of inference", "inference per image (\xC2\xB5s)", inference,
                              accuracy, false),
                     std::move(size), std::move(step), std::move(wish), std::move(key)};
    figure.notes.emplace_back(
        "inference: as executed (integer codes, blocks of weights, a smaller dense network), with "
        "the batch size of training");
  } else {
    figure.panels = {std::move(step), std::move(key), std::move(size), std::move(wish)};
  }
  for (const char* const note :
       {"stored: of a quantised or sparse run its model file, else the parameters in the "
        "checkpoint",
        "nominal: weights that are not pruned times their bits, biases in 32 bits; positions of "
        "zeros and step sizes are not counted"}) {
    figure.notes.emplace_back(note);
  }
  return finished(std::move(figure), groups, std::move(plot.remarks), /*of_times=*/true);
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("pareto", {.summary = "accuracy against time and size",
                                   .order = 20,
                                   .draw = convscope::draw_by_part(convscope::by_data_set_and_split,
                                                                   convscope::draw_pareto)})
