// SPDX-License-Identifier: Apache-2.0
// compare_runs.cpp: compares runs: their configs, their environments, and their results.
#include "experiments/compare/compare_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/compare/rank_test.h"
#include "experiments/compare/student_t.h"
#include "experiments/report/table/run_columns.h"
#include "framework/io/bytes.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Metric {
  const char* name;
  bool more_is_better;
};
// In the order of the table, the most important first.
constexpr Metric kMetrics[] = {{"acc", true},
                               {"best_acc", true},
                               {"test_top5", true},
                               {"test_iou", true},
                               {"val_acc", true},
                               {"test_loss", false},
                               {"train_loss", false},
                               {"avg_step", false},
                               {"avg_forward", false},
                               {"avg_backward", false},
                               {"avg_inference", false},
                               {"images_per_s", true},
                               {"seconds", false},
                               {"avg_forward_mem", false},
                               {"avg_backward_mem", false},
                               {"peak_workspace", false},
                               {"weight_bytes", false}};
// Values that were used in the run. They follow from the config and the machine.
constexpr const char* kRan[] = {"execution", "step", "algorithm", "epochs", "params", "state"};

std::string content_of(const std::string& path) {
  try {
    return read_text(path, std::size_t{1} << 20);
  } catch (const Error&) {  // a run of another program or version
    return "";
  }
}

Facts config_of(const RunSide& side) {
  Facts facts;
  for (const RunRow& run : side.runs) {
    for (const auto& [key, value] : run.config) {
      if (key == "seed" || key == "name" || key == "schema") continue;
      const auto known = side.runs.front().config.find(key);
      const bool seen = &run != &side.runs.front() && known != side.runs.front().config.end();
      if (seen && known->second == value) continue;
      add_fact(facts, key, cell_text(run_cell(run, key), 9));
    }
    for (const char* name : kRan) {
      const TableCell cell = run_cell(run, name);
      if (cell.index() != 0) add_fact(facts, cat("(ran) ", name), cell_text(cell, 9));
    }
  }
  return facts;
}

// Returns the default of a key as config_of() writes it: "0.3" for sparsity.drop_fraction. Returns
// "" for a key without a default.
std::string default_of(const std::string& key) {
  if (key.ends_with(".method") || key.ends_with(".type")) return "";  // they name the block
  const auto at = default_config().find(key);
  if (at == default_config().end()) return "";
  RunRow row;
  row.config.insert(*at);
  return cell_text(run_cell(row, key), 9);
}

void mark_defaults(std::vector<FactRow>& rows) {
  for (FactRow& row : rows) {
    const auto plain = [value = default_of(row.key)](const std::string& own) {
      return own == "-" || own == value;
    };
    row.is_default =
        std::ranges::count(row.values, "-") > 0 && std::ranges::all_of(row.values, plain);
  }
}

Facts environment_of(const RunSide& side) {
  Facts facts;
  for (const RunRow& run : side.runs) add_environment(facts, content_of(run.path + "/env.json"));
  return facts;
}

ComparedSide described(const RunSide& side, std::size_t number) {
  std::vector<std::string> seeds;
  ComparedSide out{.letter = std::string(1, static_cast<char>('A' + number)),
                   .given = side.given,
                   .text = {},
                   .files = {}};
  for (const RunRow& run : side.runs) {
    seeds.push_back(std::to_string(run.summary.seed));
    out.files.push_back(run.path);
  }
  out.text = cat(seeds.size(), seeds.size() == 1 ? " run, seed " : " runs, seeds ", join(seeds));
  return out;
}

MeanStd values_of(const RunSide& side, const std::string& metric) {
  std::vector<double> values;
  for (const RunRow& run : side.runs) {
    const TableCell cell = run_cell(run, metric);
    const auto* number = std::get_if<double>(&cell);
    if (number != nullptr && std::isfinite(*number)) values.push_back(*number);
  }
  return mean_std(values);
}

MetricResult result_of(const Metric& metric, const MeanStd& first, const MeanStd& other,
                       std::size_t side) {
  const RunColumn* const column = find_run_column(metric.name);
  MetricResult out{.metric = metric.name,
                   .unit = column->unit,
                   .digits = column->digits,
                   .side = side,
                   .first = first,
                   .other = other,
                   .difference = other.mean - first.mean,
                   .percent = kNan,
                   .low = kNan,
                   .high = kNan,
                   .p = kNan,
                   .p_adjusted = kNan};
  if (first.mean != 0) out.percent = 100 * out.difference / std::abs(first.mean);
  if (first.count < 2 || other.count < 2) {
    out.outcome = Outcome::one_value;
  } else if (first.std == 0 && other.std == 0) {
    const bool more = out.difference > 0;
    out.outcome = out.difference == 0             ? Outcome::same
                  : more == metric.more_is_better ? Outcome::better
                                                  : Outcome::worse;
  } else {
    const WelchTest test = welch_test(first, other);
    out.low = test.low;
    out.high = test.high;
    out.p = test.p;
  }
  return out;
}

// Corrects the p values of one metric for the number of sides, then sets the outcomes.
void judge(std::vector<MetricResult>& metric_results, const Metric& metric) {
  std::vector<double> p;
  for (const MetricResult& result : metric_results) p.push_back(result.p);
  const std::vector<double> adjusted = holm(p);
  for (std::size_t i = 0; i < p.size(); ++i) {
    MetricResult& result = metric_results[i];
    result.p_adjusted = adjusted[i];
    if (std::isnan(p[i])) continue;
    const bool good = (result.difference > 0) == metric.more_is_better;
    result.outcome = !(adjusted[i] < kSignificance) ? Outcome::noise
                     : good                         ? Outcome::better
                                                    : Outcome::worse;
  }
}

}  // namespace

CompareResult compare_runs(const std::vector<RunSide>& sides) {
  CompareResult out;
  std::vector<Facts> configs, environments;
  std::vector<std::string> letters;
  for (const RunSide& side : sides) {
    out.sides.push_back(described(side, out.sides.size()));
    letters.push_back(out.sides.back().letter);
    configs.push_back(config_of(side));
    environments.push_back(environment_of(side));
    out.remarks.insert(out.remarks.end(), side.remarks.begin(), side.remarks.end());
  }
  const auto pointers = [](const std::vector<Facts>& all) {
    std::vector<const Facts*> some;
    for (const Facts& facts : all) some.push_back(&facts);
    return some;
  };
  out.config = differing(pointers(configs));
  mark_defaults(out.config);
  out.environment = differing(pointers(environments));
  out.warnings = machine_warnings(letters, pointers(environments));
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const auto unfinished =
        std::ranges::count_if(sides[i].runs, [](const RunRow& run) { return run.state != "DONE"; });
    if (unfinished == 0) continue;
    out.warnings.push_back(cat(letters[i], ": ", unfinished, " of ", sides[i].runs.size(),
                               " runs are not done, their numbers are those of the last epoch"));
  }
  const auto is_disturbed = [](const RunSide& side) {
    return std::ranges::any_of(side.runs,
                               [](const RunRow& run) { return run.summary.disturbed(); });
  };
  std::vector<std::string> busy;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (is_disturbed(sides[i])) busy.push_back(letters[i]);
  }
  if (!busy.empty()) {
    out.warnings.push_back(cat("other programs used the cores while runs of ", join(busy, " and "),
                               " trained: their times may be too long"));
  }
  for (const Metric& metric : kMetrics) {
    const MeanStd first = values_of(sides[0], metric.name);
    std::vector<MetricResult> results;
    for (std::size_t i = 1; i < sides.size(); ++i) {
      const MeanStd other = values_of(sides[i], metric.name);
      if (first.count == 0 || other.count == 0) continue;
      results.push_back(result_of(metric, first, other, i));
      results.back().disturbed = is_disturbed(sides[0]) || is_disturbed(sides[i]);
    }
    judge(results, metric);
    out.metrics.insert(out.metrics.end(), results.begin(), results.end());
  }
  // The rows are sorted by side: all metrics of B, then all of C.
  std::ranges::stable_sort(out.metrics, {}, &MetricResult::side);
  return out;
}

}  // namespace convscope
