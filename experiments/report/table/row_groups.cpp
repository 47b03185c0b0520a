// SPDX-License-Identifier: Apache-2.0
// row_groups.cpp: combines runs that have equal values of some keys into one row.
#include "experiments/report/table/row_groups.h"

#include <algorithm>
#include <set>

#include "experiments/report/table/run_columns.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Cells = std::vector<TableCell>;
using Group = std::vector<const RunRow*>;

constexpr std::size_t kMaxWords = 4;  // number of different values in a cell

// Returns the mean of the numbers, or the different values: "1 / 2 / 3".
TableCell joined(const Group& group, const std::string& column) {
  const RunColumn* const known = find_run_column(column);
  std::vector<double> numbers;
  Cells different;
  for (const RunRow* row : group) {
    const TableCell cell = run_cell(*row, column);
    if (cell.index() == 0) continue;
    if (const auto* number = std::get_if<double>(&cell)) numbers.push_back(*number);
    if (std::ranges::count(different, cell) == 0) different.push_back(cell);
  }
  if (known != nullptr && known->measured) return TableCell(mean_std(numbers));
  if (different.empty()) return {};
  if (different.size() == 1) return different.front();
  std::vector<std::string> words;
  for (const TableCell& cell : different) {
    if (words.size() == kMaxWords) {
      words.push_back(cat("... (", different.size(), ")"));
      break;
    }
    words.push_back(cell_text(cell, 6));
  }
  return join(words, " / ");
}

void note_differences(const Group& group, std::set<std::string>& keys) {
  const auto note = [&](const RunRow& a, const RunRow& b) {
    for (const auto& [key, value] : a.config) {
      if (is_bookkeeping(key)) continue;
      const auto other = b.config.find(key);
      if (other == b.config.end() || other->second != value) keys.insert(key);
    }
  };
  for (const RunRow* row : group) {
    note(*row, *group.front());
    note(*group.front(), *row);
  }
}

}  // namespace

bool is_bookkeeping(const std::string& key) {
  if (key == "seed" || key == "name" || key == "note" || key == "tags") return true;
  return key.starts_with("log.") || key.starts_with("checkpoint.") || key.starts_with("expect.");
}

GroupedRuns group_rows(const std::vector<RunRow>& rows, const std::vector<std::string>& keys,
                       const std::vector<std::string>& columns) {
  for (const std::string& key : keys) {
    check_run_column(key, rows);
    const RunColumn* const known = find_run_column(key);
    if (known == nullptr || !known->measured) continue;
    fail(ErrorKind::kInvalid, "report",
         cat("expected --group with keys that runs share, such as optim.lr, got '", key,
             "', which each run measures again"));
  }
  std::vector<std::pair<Cells, Group>> groups;
  for (const RunRow& row : rows) {
    Cells values;
    for (const std::string& key : keys) values.push_back(run_cell(row, key));
    auto at = std::ranges::find(groups, values, &std::pair<Cells, Group>::first);
    if (at == groups.end()) {
      groups.push_back({std::move(values), {}});
      at = groups.end() - 1;
    }
    at->second.push_back(&row);
  }

  GroupedRuns out;
  for (const std::string& key : keys) out.table.columns.push_back(head_of(key));
  out.table.columns.push_back({"n"});
  for (const std::string& column : columns) {
    check_run_column(column, rows);
    TextTable::Column head = head_of(column);
    const RunColumn* const known = find_run_column(column);
    head.is_mean = known != nullptr && known->measured;
    out.table.columns.push_back(head);
  }
  const auto is_disturbed = [](const RunRow* row) {
    return row->has_summary && row->summary.disturbed();
  };
  const auto any = [&](const auto& group) {
    return std::ranges::any_of(group.second, is_disturbed);
  };
  const bool with_load = std::ranges::any_of(groups, any) &&
                         std::ranges::count(keys, "busy") == 0 &&
                         std::ranges::count(columns, "busy") == 0;
  if (with_load) out.table.columns.push_back({"busy"});
  std::set<std::string> varies;
  for (const auto& [values, group] : groups) {
    Cells& cells = out.table.rows.emplace_back(values);
    cells.emplace_back(static_cast<std::int64_t>(group.size()));
    for (const std::string& column : columns) cells.push_back(joined(group, column));
    const std::int64_t disturbed = std::ranges::count_if(group, is_disturbed);
    if (with_load) {
      cells.push_back(disturbed == 0 ? TableCell() : cat(disturbed, " of ", group.size()));
    }
    out.disturbed += disturbed;
    note_differences(group, varies);
    out.unfinished +=
        std::ranges::count_if(group, [](const RunRow* row) { return row->state != "DONE"; });
  }
  out.varies = {varies.begin(), varies.end()};
  return out;
}

void sort_table(TextTable& table, const std::string& column, bool descending) {
  std::vector<std::string> names;
  for (const TextTable::Column& one : table.columns) names.push_back(one.name);
  const auto at = static_cast<std::size_t>(std::ranges::find(names, column) - names.begin());
  if (at == names.size()) {
    fail(ErrorKind::kInvalid, "report",
         cat("expected --sort with a column of the table, got '", column,
             "' (columns: ", join(names), ")"));
  }
  std::ranges::stable_sort(table.rows, [&](const Cells& a, const Cells& b) {
    const auto without = [&](const TableCell& cell) {
      const auto* mean = std::get_if<MeanStd>(&cell);
      return mean != nullptr && mean->count == 0 ? TableCell()
                                                 : shown_cell(cell, table.columns[at]);
    };
    return cell_before(without(a[at]), without(b[at]), descending);
  });
}

}  // namespace convscope
