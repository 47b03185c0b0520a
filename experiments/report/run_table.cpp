// SPDX-License-Identifier: Apache-2.0
// run_table.cpp: runs as rows of a table: Markdown, CSV or JSON, sorted by any column.
#include "experiments/report/run_table.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "experiments/report/text_table.h"
#include "experiments/run_folder/run_folder.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Cell = TableCell;

struct Column {
  const char* name;
  int digits;  // significant ones in Markdown; 0 = two decimals (percent)
  std::function<Cell(const RunSummary&)> of;
};

Cell text_cell(const std::string& text) { return text.empty() ? Cell{} : Cell{text}; }
Cell maybe(const std::optional<double>& value) { return value ? Cell{*value} : Cell{}; }
// Sums over no steps are no measurement.
Cell measured(const RunSummary& s, double value) {
  return s.timed_steps > 0 ? Cell{value} : Cell{};
}

Cell phase(const RunSummary& s, double value) {
  return s.phases == "whole step" ? Cell{} : measured(s, value);
}

const std::vector<Column>& columns_of_summary() {
  static const std::vector<Column> columns = {
      {"name", 6, [](const RunSummary& s) { return text_cell(s.name); }},
      {"batch_size", 6, [](const RunSummary& s) { return Cell{s.batch_size}; }},
      {"avg_forward", 4, [](const RunSummary& s) { return phase(s, s.avg_forward); }},
      {"avg_backward", 4, [](const RunSummary& s) { return phase(s, s.avg_backward); }},
      {"avg_forward_mem", 4, [](const RunSummary& s) { return measured(s, s.avg_forward_mem); }},
      {"avg_backward_mem", 4, [](const RunSummary& s) { return measured(s, s.avg_backward_mem); }},
      {"kernel_size", 6, [](const RunSummary& s) { return text_cell(s.kernel_size); }},
      {"acc", 0, [](const RunSummary& s) { return maybe(s.acc); }},
      {"best_acc", 0, [](const RunSummary& s) { return maybe(s.best_acc); }},
      {"execution", 6, [](const RunSummary& s) { return text_cell(s.execution); }},
      {"step", 6, [](const RunSummary& s) { return text_cell(s.step); }},
      {"algorithm", 6, [](const RunSummary& s) { return text_cell(s.algorithm); }},
      {"device", 6, [](const RunSummary& s) { return text_cell(s.device); }},
      {"precision", 6, [](const RunSummary& s) { return text_cell(s.precision); }},
      {"threads", 6, [](const RunSummary& s) { return Cell{s.threads}; }},
      {"isa", 6, [](const RunSummary& s) { return text_cell(s.isa); }},
      {"images_per_s", 5, [](const RunSummary& s) { return measured(s, s.images_per_s); }},
      {"epochs", 6, [](const RunSummary& s) { return Cell{s.epochs}; }},
      {"seed", 6, [](const RunSummary& s) { return Cell{s.seed}; }},
      {"params", 6, [](const RunSummary& s) { return Cell{s.params}; }},
      {"avg_step", 4, [](const RunSummary& s) { return measured(s, s.avg_step); }},
      {"phases", 6, [](const RunSummary& s) { return text_cell(s.phases); }},
      {"peak_workspace", 4, [](const RunSummary& s) { return measured(s, s.peak_workspace); }},
      {"data", 6, [](const RunSummary& s) { return text_cell(s.data); }},
      {"model", 6, [](const RunSummary& s) { return text_cell(s.model); }},
      {"train_loss", 4,
       [](const RunSummary& s) { return s.epochs > 0 ? Cell{s.train_loss} : Cell{}; }},
      {"test_loss", 4, [](const RunSummary& s) { return maybe(s.test_loss); }},
      {"val_acc", 0, [](const RunSummary& s) { return maybe(s.val_acc); }},
      {"seconds", 4, [](const RunSummary& s) { return Cell{s.seconds}; }},
      {"tags", 6, [](const RunSummary& s) { return text_cell(s.tags); }},
      {"note", 6, [](const RunSummary& s) { return text_cell(s.note); }},
  };
  return columns;
}

const Column* find_column(const std::string& name) {
  for (const Column& column : columns_of_summary()) {
    if (name == column.name) return &column;
  }
  return nullptr;
}

Cell cell_of(const RunRow& row, const std::string& name) {
  if (name == "id") return text_cell(row.summary.id);
  if (name == "state") return text_cell(row.state);
  if (name == "reason") return text_cell(row.reason);
  if (name == "path") return text_cell(row.path);
  const Column* column = find_column(name);
  if (column == nullptr) {
    const std::string near = nearest_word(name, all_columns());
    fail(ErrorKind::kInvalid, "report",
         cat("expected a column of the table, got '", name, "'",
             near.empty() ? "" : cat("; did you mean '", near, "'?"),
             " (known: ", join(all_columns()), ")"));
  }
  // A row without a summary knows its name only, from its folder.
  if (!row.has_summary && name != "name") return {};
  return column->of(row.summary);
}

TextTable table_of(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  TextTable table;
  for (const std::string& name : columns) {
    const Column* column = find_column(name);
    table.columns.push_back({name, column == nullptr ? 6 : column->digits});
  }
  for (const RunRow& row : rows) {
    std::vector<Cell>& cells = table.rows.emplace_back();
    for (const std::string& name : columns) cells.push_back(cell_of(row, name));
  }
  return table;
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
  std::ifstream in(folder + "/summary.json", std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  try {
    if (!in) {
      fail(ErrorKind::kIo, "summary",
           "expected summary.json, because each epoch writes it, got none");
    }
    row.summary = parse_summary(text.str());
  } catch (const Error& error) {
    row.has_summary = false;
    row.summary.id = path.filename().string();
    row.summary.name = fs::absolute(path).parent_path().filename().string();
    if (row.reason.empty()) row.reason = error.what();
  }
  return row;
}

std::vector<std::string> all_columns() {
  std::vector<std::string> names = {"id"};
  for (const Column& column : columns_of_summary()) names.emplace_back(column.name);
  for (const char* name : {"state", "reason", "path"}) names.emplace_back(name);
  return names;
}

std::vector<std::string> core_columns() {
  const std::vector<std::string> all = all_columns();
  return {all.begin(), all.begin() + 9};
}

void sort_rows(std::vector<RunRow>& rows, const std::string& column, bool descending) {
  cell_of(RunRow{}, column);  // an unknown column is an error, however few rows there are
  std::stable_sort(rows.begin(), rows.end(), [&](const RunRow& a, const RunRow& b) {
    const Cell x = cell_of(a, column);
    const Cell y = cell_of(b, column);
    if (x.index() == 0 || y.index() == 0) return x.index() != 0 && y.index() == 0;
    return descending ? y < x : x < y;
  });
}

std::vector<std::string> reading_columns(const std::vector<RunRow>& rows) {
  std::vector<std::string> names = core_columns();
  for (const char* name : {"execution", "algorithm", "device", "threads", "images_per_s"}) {
    names.emplace_back(name);
  }
  const auto unfinished = [](const RunRow& row) { return row.state != "DONE"; };
  if (std::any_of(rows.begin(), rows.end(), unfinished)) {
    names.insert(names.end(), {"state", "reason"});
  }
  return names;
}

std::string to_markdown(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  return to_markdown(table_of(rows, columns));
}
std::string to_csv(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  return to_csv(table_of(rows, columns));
}
std::string to_json(const std::vector<RunRow>& rows, const std::vector<std::string>& columns) {
  return to_json(table_of(rows, columns));
}

}  // namespace convscope
