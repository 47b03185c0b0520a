// SPDX-License-Identifier: Apache-2.0
// run_data.cpp: the contents of all files of a run folder, for plots and reports.
#include "experiments/report/run_data.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "experiments/config/flat/flat_config.h"
#include "experiments/run_folder/run_file.h"
#include "experiments/run_folder/run_folder.h"
#include "framework/io/bytes.h"
#include "framework/io/file_start.h"

namespace convscope {
namespace {

using json = nlohmann::ordered_json;

// Returns the content of a file, or "" when the file is missing or unreadable. An unreadable file
// is added to the run's problems.
std::string content_of(RunData& run, const std::string& name) {
  const std::string path = run.path + "/" + name;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";  // opening a pipe would block
  try {
    return read_text(path, most_bytes_of_run_file(name));
  } catch (const Error& failure) {
    const std::string text = failure.what();  // "[read] expected to read <path>, got: <reason>"
    const std::size_t reason = text.find(", got: ");
    run.problems.push_back(
        cat(name, ": got ", reason == std::string::npos ? text : text.substr(reason + 7)));
    return "";
  }
}

void read_config(RunData& run) {
  try {
    for (const auto& [key, value] : flat_config(content_of(run, "config.yaml"), "config.yaml")) {
      if (value.index() != 0) run.config[key] = to_text(value);
    }
  } catch (const Error& error) {
    const std::string text = error.what();  // "[config] config.yaml:3:1: error: expected ..."
    run.problems.push_back(text.substr(text.find("] ") + 2));
  }
}

void read_summary(RunData& run) {
  const std::string text = content_of(run, "summary.json");
  if (text.empty()) return;
  try {
    run.summary = parse_summary(text);
    run.id = run.summary->id;
    run.name = run.summary->name;
  } catch (const Error& error) {
    run.problems.push_back(cat("summary.json: ", error.what()));
  }
}

void read_metrics(RunData& run) {
  const std::string path = run.path + "/metrics.jsonl";
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > most_bytes_of_run_file(path)) {
    run.problems.push_back(cat("metrics.jsonl: got ", size, " bytes, more than the ",
                               most_bytes_of_run_file(path), " that such a file may have"));
    return;
  }
  std::int64_t number = 0, skipped = 0, first_skipped = 0;
  for_each_line(path, 0, [&](std::string_view line, bool) {
    ++number;
    const json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto value = [&](const char* key) {
      return row.contains(key) && row[key].is_number() ? row[key].get<double>()
                                                       : std::numeric_limits<double>::quiet_NaN();
    };
    if (!row.is_object() || !std::isfinite(value("step"))) {
      if (skipped++ == 0) first_skipped = number;
      return;
    }
    if (!row.contains("split") || row["split"] != "train") return;
    run.train.push_back({.step = value("step"),
                         .loss = value("loss"),
                         .accuracy = value("acc"),
                         .learning_rate = value("lr"),
                         .images_per_s = value("images_per_s")});
  });
  if (skipped > 0) {
    run.problems.push_back(cat("metrics.jsonl:", first_skipped, ": expected a JSON object with a ",
                               "step; ", skipped, skipped == 1 ? " line is" : " lines are",
                               " left out"));
  }
}

}  // namespace

double RunData::steps_per_epoch() const {
  for (std::size_t row = epochs.rows.size(); row-- > 0;) {
    const double steps = epochs.number(row, "step") / epochs.number(row, "epoch");
    if (std::isfinite(steps) && steps > 0) return steps;
  }
  return 0;
}

RunData read_run(const std::string& folder) {
  namespace fs = std::filesystem;
  RunData run;
  run.path = folder;
  const fs::path path = fs::absolute(folder).lexically_normal();
  run.id = path.filename().string();
  run.name = path.parent_path().filename().string();
  const RunStatus status = read_run_status(folder);
  run.state = status.state;
  run.reason = status.reason;
  read_config(run);
  read_summary(run);
  read_metrics(run);
  const auto table = [&](const char* name, const std::vector<std::string>& text_columns) {
    CsvTable out = parse_csv(content_of(run, name), name, text_columns);
    run.problems.insert(run.problems.end(), out.problems.begin(), out.problems.end());
    return out;
  };
  run.epochs = table("epochs.csv", {"phases"});
  run.layers =
      table("layers.csv", {"layer", "kind", "output", "kernel", "forward", "backward_data",
                           "backward_weight", "step", "timed_with", "inference", "layout"});
  run.sparsity = table("sparsity.csv", {"layer"});
  run.confusion = table("confusion.csv", {"true_class"});
  run.quant = table("quant.csv", {"layer", "tensor", "signed"});
  return run;
}

}  // namespace convscope
