// SPDX-License-Identifier: Apache-2.0
// confusion_plot.cpp: the confusion matrix of the test images.
#include <algorithm>
#include <cmath>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/plots/run_parts.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxClasses = 40;  // more cells could not be read
constexpr std::size_t kMaxPanels = 6;

// Returns what the matrix counts: "images" or, with a class for each pixel, "pixels".
const char* unit_of_counts(const RunGroup& group) {
  const std::optional<RunSummary>& summary = group.runs[0].summary;
  return summary && summary->test_iou ? "pixels" : "images";
}

HeatCell cell_of_count(const CsvTable& table, std::size_t row, std::size_t column, double images,
                       const char* unit) {
  const double count = number_in(table.rows[row][column]);
  const double share = images > 0 ? count / images : 0;
  HeatCell cell{.text = number_text(count, 6), .shade = share};
  cell.title = cat("true class ", table.rows[row][0], ", predicted ", table.columns[column], ": ",
                   cell.text, " ", unit, ", ", number_text(100 * share, 3), " % of the class");
  cell.framed = column == row + 1;
  return cell;
}

HeatPanel confusion_panel(const RunGroup& group, Figure& figure) {
  const CsvTable& table = group.runs[0].confusion;
  const char* const unit = unit_of_counts(group);
  HeatPanel panel{.title = group.label, .one_table = true};
  panel.columns.assign(table.columns.begin() + 1, table.columns.end());
  panel.scale = {{0, "0"}, {0.5, "50"}, {1, "100"}};
  panel.scale_label = cat("% of the ", unit, " of the true class");
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    double images = 0;
    for (std::size_t k = 1; k < table.columns.size(); ++k) images += number_in(table.rows[row][k]);
    panel.rows.push_back(table.rows[row][0]);
    panel.cells.emplace_back();
    for (std::size_t k = 1; k < table.columns.size(); ++k) {
      panel.cells.back().push_back(cell_of_count(table, row, k, images, unit));
      figure.data.push_back(
          {group.label, table.rows[row][0], table.columns[k], panel.cells.back().back().text});
    }
  }
  return panel;
}

std::string obstacle(const RunGroup& group, std::size_t panels) {
  const CsvTable& table = group.runs[0].confusion;
  if (table.empty()) return "it has no confusion.csv";
  if (table.rows.size() + 1 != table.columns.size()) return "its confusion.csv is not square";
  if (table.rows.size() > kMaxClasses) return cat("it has more than ", kMaxClasses, " classes");
  if (panels == kMaxPanels) return cat("only the first ", kMaxPanels, " configs are drawn");
  return "";
}

Plot draw_confusion(const RunPart& part) {
  Plot plot;
  std::vector<const RunGroup*> groups;  // groups that are drawn
  Figure figure{.title = "Confusion matrix of the test images"};
  figure.data = {{"config", "true class", "predicted class", "count"}};
  for (const PartMember& member : part.members) {
    const std::string why = obstacle(*member.group, figure.panels.size());
    if (!why.empty()) {
      plot.remarks.push_back(cat(member.group->label, " is left out, because ", why));
      continue;
    }
    groups.push_back(member.group);
    figure.panels.emplace_back(confusion_panel(*member.group, figure));
  }
  if (groups.empty()) {
    return {.why_not = cat("no run has a confusion.csv of at most ", kMaxClasses, " classes")};
  }
  figure.notes = {cat("rows: true class; columns: predicted class; framed: right; numbers: ",
                      unit_of_counts(*groups[0]), "; first seed of each config")};
  figure.subtitle = runs_text(groups);
  plot.figure = std::move(figure);
  return plot;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_PLOT("confusion", {.summary = "confusion matrix of the test images",
                                      .order = 15,
                                      .draw = convscope::draw_by_part(convscope::by_data_set,
                                                                      convscope::draw_confusion)})
