// SPDX-License-Identifier: Apache-2.0
// sweep_table.cpp: the final table of a sweep: a row for each variant of the config, with mean and
// standard deviation over its seeds. In tables for people, times are medians.
#include "experiments/sweep/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "experiments/report/csv_table.h"
#include "experiments/report/table/run_columns.h"
#include "framework/registry.h"

namespace convscope {
namespace {

// The table's values of one row.
struct RowResult {
  std::vector<const RunSummary*> runs;  // one per seed that was trained to the end
  std::map<std::string, MeanStd> numbers;
  std::string kernel_size, execution, step;
  std::int64_t batch_size = 0, epochs = 0;
  int planned = 0, jobs = 1;
  std::int64_t disturbed = 0;  // runs during which other programs used the cores
  std::string state, error;
  bool has(const std::string& name) const { return numbers.at(name).count > 0; }
};

// A run that missed a value of the config block `expect` has trained all its epochs, so its numbers
// are complete.
bool is_complete(const SweepOutcome& outcome) {
  const std::optional<RunSummary>& summary = outcome.state.summary;
  if (!summary) return false;
  if (outcome.state.progress == MemberProgress::done) return true;
  return outcome.state.progress == MemberProgress::failed &&
         summary->epochs == summary->epochs_planned;
}

// Lists equal words once: "f32 dense", or "f32 dense / masked dense".
void add_word(std::string& words, const std::string& word) {
  if (words == word || words.starts_with(word + " / ") || words.ends_with(" / " + word)) return;
  words += (words.empty() ? "" : " / ") + word;
}

RowResult result_of(const std::string& row, const SweepPlan& plan,
                    const std::vector<SweepOutcome>& outcomes) {
  RowResult out;
  int done = 0, begun = 0, failed = 0;
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const SweepMember& member = plan.members[i];
    if (member.row != row) continue;
    const SweepOutcome& outcome = outcomes[i];
    ++out.planned;
    out.batch_size = member.config.data.batch_size;
    if (!outcome.error.empty()) {
      ++failed;
      if (out.error.empty()) out.error = cat("seed ", member.config.seed, ": ", outcome.error);
    } else if (outcome.state.progress == MemberProgress::done) {
      ++done;
    } else if (outcome.state.progress != MemberProgress::missing) {
      ++begun;
    }
    if (!is_complete(outcome)) continue;
    out.runs.push_back(&*outcome.state.summary);
    out.disturbed += out.runs.back()->disturbed() ? 1 : 0;
    out.jobs = std::max(out.jobs, outcome.jobs);
  }
  out.state = failed > 0              ? "failed"
              : done == out.planned   ? "done"
              : done > 0 || begun > 0 ? "partial"
                                      : "missing";
  const auto over_runs = [&](const char* name,
                             const std::function<std::optional<double>(const RunSummary&)>& of) {
    std::vector<double> values;
    for (const RunSummary* run : out.runs) {
      const std::optional<double> value = of(*run);
      if (value) values.push_back(*value);
    }
    out.numbers[name] = mean_std(values);
  };
  const auto timed = [](double RunSummary::*member) {
    return [member](const RunSummary& run) {
      return run.timed_steps > 0 ? std::optional<double>(run.*member) : std::nullopt;
    };
  };
  over_runs("avg_forward", timed(&RunSummary::avg_forward));
  over_runs("avg_backward", timed(&RunSummary::avg_backward));
  over_runs("avg_forward_mem", timed(&RunSummary::avg_forward_mem));
  over_runs("avg_backward_mem", timed(&RunSummary::avg_backward_mem));
  over_runs("acc", [](const RunSummary& run) { return run.acc; });
  over_runs("test_iou", [](const RunSummary& run) { return run.test_iou; });
  over_runs("avg_inference", [](const RunSummary& run) { return run.avg_inference; });
  over_runs("weight_bytes", [](const RunSummary& run) { return run.weight_bytes; });
  for (const RunSummary* run : out.runs) {
    add_word(out.kernel_size, run->kernel_size);
    add_word(out.execution, run->execution);
    if (!run->step.empty()) add_word(out.step, run->step);
    out.epochs = run->epochs;
  }
  return out;
}

// Names the first few and counts the others.
std::string short_list(std::vector<std::string> words) {
  constexpr std::size_t kMax = 4;
  if (words.size() > kMax) {
    words[kMax] = cat(words.size() - kMax, " more");
    words.resize(kMax + 1);
  }
  return join(words);
}

// Returns the keys that one row sets: "data.batch_size" -> 64.
std::map<std::string, TableCell> settings_of(const std::string& row, const SweepPlan& plan) {
  std::map<std::string, TableCell> out;
  for (const SweepMember& member : plan.members) {
    if (member.row != row) continue;
    for (const auto& [key, text] : member.overrides) {
      const double number = number_in(text);
      const bool whole = number == std::floor(number) && std::abs(number) < 1e15 &&
                         text.find_first_not_of("-0123456789") == std::string::npos;
      out[key] = std::isnan(number) ? TableCell(text)
                 : whole            ? TableCell(static_cast<std::int64_t>(number))
                                    : TableCell(number);
    }
    break;  // the same with every seed
  }
  return out;
}

// Builds the table by columns. `people`: the table is for people, not for programs.
class TableBuilder {
 public:
  TableBuilder(const SweepPlan& plan, const std::vector<SweepOutcome>& outcomes, bool people)
      : plan_(plan), people_(people) {
    for (const SweepRow& row : plan.rows) {
      results_.push_back(result_of(row.name, plan, outcomes));
      settings_.push_back(settings_of(row.name, plan));
      for (const auto& [key, value] : settings_.back()) keys_.insert(key);
    }
    table_.rows.resize(plan.rows.size());
  }

  TextTable build() {
    add("name", [&](std::size_t i) { return TableCell(plan_.rows[i].name); });
    if (people_) add_axes();
    add("batch_size", [&](std::size_t i) { return TableCell(results_[i].batch_size); });
    for (const char* name : {"avg_forward", "avg_backward"}) {
      add_mean(name);
      add_reference(name);
      if (!people_) add_std(name);
    }
    for (const char* name : {"avg_forward_mem", "avg_backward_mem"}) {
      add_mean(name);
      add_reference(name);
    }
    add("kernel_size", [&](std::size_t i) { return text(results_[i].kernel_size); });
    add_mean("acc");
    if (!people_) add_std("acc");
    add_reference("acc");
    if (people_ && any([](const RowResult& row) { return row.has("test_iou"); })) {
      add_mean("test_iou");
    }
    add("seeds", [&](std::size_t i) {
      return TableCell(static_cast<std::int64_t>(results_[i].runs.size()));
    });
    add("execution", [&](std::size_t i) { return text(results_[i].execution); });
    const auto other_step = [&](const RowResult& row) { return row.step != results_[0].step; };
    if (people_ && any(other_step)) add_step();
    if (people_ && any([](const RowResult& row) { return row.has("avg_inference"); })) {
      add_mean("avg_inference");
    }
    if (people_ && any([](const RowResult& row) { return row.has("weight_bytes"); })) {
      add_mean("weight_bytes");
    }
    add("epochs", [&](std::size_t i) {
      return results_[i].runs.empty() ? TableCell() : TableCell(results_[i].epochs);
    });
    if (!people_ || any([](const RowResult& row) { return row.jobs > 1; })) {
      add("jobs", [&](std::size_t i) {
        return results_[i].runs.empty() ? TableCell()
                                        : TableCell(static_cast<std::int64_t>(results_[i].jobs));
      });
    }
    if (people_ && any([](const RowResult& row) { return row.disturbed > 0; })) {
      add("busy", [&](std::size_t i) {
        const RowResult& row = results_[i];
        return row.disturbed == 0 ? TableCell()
                                  : TableCell(cat(row.disturbed, " of ", row.runs.size()));
      });
    }
    if (!people_ || any([](const RowResult& row) { return row.state != "done"; })) {
      add("state", [&](std::size_t i) { return text(results_[i].state); });
    }
    if (!people_ || any([](const RowResult& row) { return !row.error.empty(); })) {
      add("error", [&](std::size_t i) { return text(results_[i].error); });
    }
    if (!people_) {  // later columns come last
      for (const char* name : {"avg_forward_mem", "avg_backward_mem"}) add_std(name);
      add_step();
      for (const char* name : {"avg_inference", "weight_bytes"}) {
        add_mean(name);
        add_std(name);
      }
      for (const std::string& key : keys_) add_setting(key);
      for (const char* name : {"avg_forward", "avg_backward", "avg_inference"}) add_median(name);
      add("busy", [&](std::size_t i) {
        return results_[i].runs.empty() ? TableCell() : TableCell(results_[i].disturbed);
      });
      add_mean("test_iou");
      add_std("test_iou");
    }
    return std::move(table_);
  }

  bool any(const std::function<bool(const RowResult&)>& fits) const {
    return std::any_of(results_.begin(), results_.end(), fits);
  }

 private:
  static TableCell text(const std::string& word) {
    return word.empty() ? TableCell() : TableCell(word);
  }
  const MeanStd& number(std::size_t i, const std::string& name) const {
    return results_[i].numbers.at(name);
  }

  void add(const std::string& name, const std::function<TableCell(std::size_t)>& cell) {
    table_.columns.push_back(head_of(name));
    for (std::size_t i = 0; i < results_.size(); ++i) table_.rows[i].push_back(cell(i));
  }
  void add_mean(const std::string& name) {
    add(name, [&](std::size_t i) {
      const MeanStd& value = number(i, name);
      if (value.count == 0) return TableCell();
      return people_ ? TableCell(value) : TableCell(value.mean);
    });
  }
  void add_std(const std::string& name) {
    add(name + "_std", [&](std::size_t i) {
      return number(i, name).count < 2 ? TableCell() : TableCell(number(i, name).std);
    });
  }
  void add_median(const std::string& name) {
    add(name + "_median", [&](std::size_t i) {
      return number(i, name).count == 0 ? TableCell() : TableCell(number(i, name).median);
    });
    add(name + "_mad", [&](std::size_t i) {
      return number(i, name).count < 2 ? TableCell() : TableCell(number(i, name).mad);
    });
  }
  void add_step() {
    add("step", [&](std::size_t i) { return text(results_[i].step); });
  }
  void add_setting(const std::string& key) {
    add(key, [&](std::size_t i) {
      const auto at = settings_[i].find(key);
      return at == settings_[i].end() ? TableCell() : at->second;
    });
  }
  // Adds a column for each key that all members set, unless they all set the same value. For a key
  // that only some members set, the member's name shows the value.
  void add_axes() {
    for (const std::string& key : keys_) {
      const auto has = [&](const auto& settings) { return settings.contains(key); };
      const auto differs = [&](const auto& settings) {
        return settings.at(key) != settings_.front().at(key);
      };
      if (key == "data.batch_size" || !std::ranges::all_of(settings_, has)) continue;
      if (std::ranges::any_of(settings_, differs)) add_setting(key);
    }
  }
  // Adds a column with the reference values of a metric, if at least one row of the plan has one.
  void add_reference(const std::string& name) {
    const auto has = [&](const SweepRow& row) { return row.reference.contains(name); };
    if (std::none_of(plan_.rows.begin(), plan_.rows.end(), has)) return;
    add(name + "_reference", [&](std::size_t i) {
      const auto& reference = plan_.rows[i].reference;
      const auto found = reference.find(name);
      return found == reference.end() ? TableCell() : TableCell(found->second);
    });
    table_.columns.back().digits = head_of(name).digits;
    table_.columns.back().unit = head_of(name).unit;
  }

  const SweepPlan& plan_;
  bool people_;
  std::vector<RowResult> results_;
  std::vector<std::map<std::string, TableCell>> settings_;  // indexed like results_
  std::set<std::string> keys_;                              // of all rows
  TextTable table_;
};

}  // namespace

TextTable sweep_table(const SweepPlan& plan, const std::vector<SweepOutcome>& outcomes) {
  return TableBuilder(plan, outcomes, false).build();
}

TextTable sweep_reading_table(const SweepPlan& plan, const std::vector<SweepOutcome>& outcomes) {
  return TableBuilder(plan, outcomes, true).build();
}

std::string sweep_markdown(const SweepPlan& plan, const std::vector<SweepOutcome>& outcomes) {
  const TextTable table = sweep_reading_table(plan, outcomes);
  std::string out = to_markdown(table);
  out +=
      "\navg_forward, avg_backward: seconds a step; _mem: MiB; acc: % of the test images; "
      "avg_inference: seconds a batch, as it is executed; weight_bytes: as stored. Over the seeds: "
      "of times the median ± the median distance from it, of all else the mean ± the standard "
      "deviation (n - 1).\n";
  if (std::ranges::count(table.columns, "test_iou", &TextTable::Column::name) > 0) {
    out += "test_iou: mean intersection over union of the classes, %; acc counts pixels.\n";
  }
  int jobs = 1;
  std::vector<std::string> disturbed;
  for (const SweepOutcome& outcome : outcomes) {
    if (!is_complete(outcome)) continue;
    jobs = std::max(jobs, outcome.jobs);
    if (outcome.state.summary->disturbed()) disturbed.push_back(outcome.state.summary->id);
  }
  if (!disturbed.empty()) {
    out += cat("busy: other programs used the cores in ", disturbed.size(),
               disturbed.size() == 1 ? " run (" : " runs (", short_list(disturbed),
               "): the times may be too long.\n");
  }
  if (jobs > 1) {
    out += cat("Times were taken with up to ", jobs,
               " members at the same time (column jobs): they are longer than those of a single "
               "member.\n");
  }
  return out;
}

}  // namespace convscope
