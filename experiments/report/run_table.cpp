// SPDX-License-Identifier: Apache-2.0
// run_table.cpp: builds a table with a row per run, in Markdown, CSV or JSON, sorted by any column.
#include "experiments/report/run_table.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "experiments/report/table/run_columns.h"
#include "experiments/run_folder/run_file.h"
#include "experiments/run_folder/run_folder.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

std::optional<std::string> content_of(const std::string& path) {
  try {
    return read_text(path, most_bytes_of_run_file(path));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

RunRow read_run_row(const std::string& folder) {
  namespace fs = std::filesystem;
  RunRow row;
  row.path = folder;
  const RunStatus status = read_run_status(folder);
  row.state = status.state;
  row.reason = status.state == "DONE" ? "" : status.reason;
  const fs::path path = fs::path(folder);
  const std::optional<std::string> text = content_of(folder + "/summary.json");
  try {
    if (!text) {
      fail(ErrorKind::kIo, "summary",
           "expected summary.json, because each epoch writes it, got none");
    }
    row.summary = parse_summary(*text);
  } catch (const Error& error) {
    row.has_summary = false;
    row.summary.id = path.filename().string();
    row.summary.name = fs::absolute(path).parent_path().filename().string();
    if (row.reason.empty()) row.reason = error.what();
  }
  return row;
}

std::string read_config(RunRow& row) {
  const std::string path = row.path + "/config.yaml";
  const std::optional<std::string> text = content_of(path);
  if (!text) return path + ": expected the run's config, got no such file";
  try {
    row.config = flat_config(*text, path);
  } catch (const Error& error) {
    const std::string sentence = error.what();
    const std::size_t end = sentence.find("] ");  // "[config] file:line:col: error: ..."
    return end == std::string::npos ? sentence : sentence.substr(end + 2);
  }
  return "";
}

std::vector<std::string> all_columns() {
  std::vector<std::string> names;
  for (const RunColumn& column : run_columns()) names.emplace_back(column.name);
  return names;
}

std::vector<std::string> core_columns() {
  const std::vector<std::string> all = all_columns();
  return {all.begin(), all.begin() + 9};
}

void sort_rows(std::vector<RunRow>& rows, const std::string& column, bool descending) {
  check_run_column(column, rows);  // an unknown column is an error even without rows
  std::stable_sort(rows.begin(), rows.end(), [&](const RunRow& a, const RunRow& b) {
    return cell_before(run_cell(a, column), run_cell(b, column), descending);
  });
}

std::vector<std::string> reading_columns(const std::vector<RunRow>& rows) {
  std::vector<std::string> names = core_columns();
  names.emplace_back("execution");
  const auto other_step = [&](const RunRow& row) {
    return row.summary.step != rows.front().summary.step;
  };
  if (std::ranges::any_of(rows, other_step)) names.emplace_back("step");
  for (const char* name : {"algorithm", "device", "threads", "images_per_s"}) {
    names.emplace_back(name);
  }
  for (const char* name : {"test_iou", "avg_inference", "weight_bytes"}) {
    const auto has = [&](const RunRow& row) { return run_cell(row, name).index() != 0; };
    if (std::ranges::any_of(rows, has)) names.emplace_back(name);
  }
  const auto disturbed = [](const RunRow& row) {
    return row.has_summary && row.summary.disturbed();
  };
  if (std::ranges::any_of(rows, disturbed)) names.emplace_back("busy");
  const auto unfinished = [](const RunRow& row) { return row.state != "DONE"; };
  if (std::any_of(rows.begin(), rows.end(), unfinished)) {
    names.insert(names.end(), {"state", "reason"});
  }
  return names;
}

TextTable run_table(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  TextTable table;
  for (const std::string& name : columns) {
    check_run_column(name, rows);
    table.columns.push_back(head_of(name));
  }
  for (const RunRow& row : rows) {
    std::vector<TableCell>& cells = table.rows.emplace_back();
    for (const std::string& name : columns) cells.push_back(run_cell(row, name));
  }
  return table;
}

std::string to_markdown(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  return to_markdown(run_table(rows, columns));
}
std::string to_csv(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  return to_csv(run_table(rows, columns));
}
std::string to_json(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  return to_json(run_table(rows, columns));
}

}  // namespace convscope
