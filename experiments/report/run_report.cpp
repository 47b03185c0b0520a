// SPDX-License-Identifier: Apache-2.0
// run_report.cpp: the table of `convscope report`, for the command line and for Python.
#include "experiments/report/run_report.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "experiments/report/run_table.h"
#include "experiments/report/table/fit_table.h"
#include "experiments/report/table/latex_table.h"
#include "experiments/report/table/row_filter.h"
#include "experiments/report/table/row_groups.h"
#include "experiments/report/table/run_columns.h"
#include "experiments/run_folder/run_search.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Names = std::vector<std::string>;

// Columns that a narrow terminal leaves out, in this order. Times, memory and accuracy of the
// training come last.
const Names kLeastImportant = {"test_top5",
                               "threads",
                               "kernel_size",
                               "algorithm",
                               "device",
                               "execution",
                               "best_acc",
                               "step",
                               "images_per_s",
                               "reason",
                               "weight_bytes",
                               "avg_inference",
                               "batch_size",
                               "state",
                               "name",
                               "test_iou",
                               "avg_forward_mem",
                               "avg_backward_mem",
                               "avg_backward",
                               "avg_forward"};

constexpr std::size_t kMaxSweptKeys = 4;     // more: the runs belong to different experiments
constexpr std::size_t kMaxRowsToRead = 500;  // number of configs; reading takes time

std::vector<RunRow> read_rows(const Names& given) {
  std::vector<RunRow> rows;
  for (const std::string& word : given) {
    std::vector<std::string> found = find_runs(word);
    std::error_code error;
    if (found.empty() && !std::filesystem::is_directory(word, error)) {
      fail(ErrorKind::kIo, "report",
           cat("expected a run folder or a folder of runs, because the table is made from them, "
               "got ",
               word, ", which is not a folder",
               word.ends_with(".json") ? "; convscope plot and compare read files of bench" : ""));
    }
    if (found.empty()) {
      fail(ErrorKind::kIo, "report", cat("expected at least one run in ", word, ", got none"));
    }
    for (const std::string& run : found) rows.push_back(read_run_row(run));
  }
  return rows;
}

// Reads configs only when a key is requested, because reading takes time.
void read_configs(std::vector<RunRow>& rows, Names& remarks) {
  std::size_t broken = 0;
  for (RunRow& row : rows) {
    const std::string problem = read_config(row);
    if (!problem.empty() && ++broken <= 3) remarks.push_back(cat("report: ", problem));
  }
  if (broken > 3) {
    remarks.push_back(cat("report: ", broken - 3, " more configs cannot be read"));
  }
}

// Returns config keys that differ between rows, as in a sweep; none if too many differ. Keys that
// are already columns of the table, and keys that cannot change a result, do not count.
Names swept_keys(std::vector<RunRow>& rows) {
  if (rows.size() < 2 || rows.size() > kMaxRowsToRead) return {};
  Names unread;  // no remarks here: only requested keys are reported
  read_configs(rows, unread);
  std::map<std::string, std::set<std::string>> values;
  for (const RunRow& row : rows) {
    for (const auto& [key, value] : row.config) values[key].insert(to_text(value));
  }
  Names out;
  for (const auto& [key, found] : values) {
    const bool own = key == "seed" || key == "name" || key == "threads" || key == "device" ||
                     key == "data.batch_size" || key == "conv.algorithm" || key == "note" ||
                     key.starts_with("expect.") || key.starts_with("log.") ||
                     key.starts_with("checkpoint.");
    const auto has = [&name = key](const RunRow& row) { return row.config.contains(name); };
    // If only some rows have a block (such as `quant`), only its key `method` becomes a column. A
    // loss that is only a name has the defaults of its options.
    const bool differs = std::ranges::all_of(rows, has)
                             ? found.size() > 1
                             : key.ends_with(".method") || key.starts_with("train.loss.");
    if (!own && differs) out.push_back(key);
  }
  return out.size() <= kMaxSweptKeys ? out : Names();
}

// Returns whether columns are added: "+optim.lr,tags".
bool adds(const Names& columns) {
  return std::ranges::any_of(columns, [](const auto& name) { return name.starts_with("+"); });
}

Names with_added(Names columns, const Names& given) {
  for (const std::string& name : given) {
    const std::string plain = name.starts_with("+") ? name.substr(1) : name;
    if (std::ranges::count(columns, plain) == 0) columns.push_back(plain);
  }
  return columns;
}

Names chosen_columns(const ReportQuery& query, const std::vector<RunRow>& rows) {
  const bool people = query.format == "md" || query.format == "latex";
  Names usual = people ? reading_columns(rows) : all_columns();
  if (!query.group.empty()) {
    std::erase_if(usual, [](const std::string& name) { return !find_run_column(name)->measured; });
  }
  Names out = query.columns;
  if (out.empty()) out = usual;
  if (adds(out)) out = with_added(usual, query.columns);
  if (out == Names{"all"}) out = all_columns();
  if (!query.group.empty()) {
    std::erase_if(out, [&](const std::string& name) {
      return std::ranges::count(query.group, name) > 0 || name == "n";
    });
  }
  return out;
}

std::string load_remark(std::int64_t disturbed, std::size_t runs) {
  return cat("report: other programs used the cores in ", disturbed, " of ", runs,
             runs == 1 ? " run" : " runs",
             " (column busy), whose times may be too long; --filter busy!=yes leaves them out");
}

TextTable grouped_table(const ReportQuery& query, const std::vector<RunRow>& rows,
                        const Names& columns, Names& remarks) {
  GroupedRuns groups = group_rows(rows, query.group, columns);
  if (!groups.varies.empty()) {
    remarks.push_back(
        cat("report: runs of one group differ in more than the seed: ", join(groups.varies)));
  }
  if (groups.unfinished > 0) {
    remarks.push_back(cat("report: ", groups.unfinished,
                          groups.unfinished == 1 ? " run that counts is" : " runs that count are",
                          " not done; --filter state=DONE leaves them out"));
  }
  if (groups.disturbed > 0) remarks.push_back(load_remark(groups.disturbed, rows.size()));
  if (!query.sort.empty()) sort_table(groups.table, query.sort, query.descending);
  return groups.table;
}

// Returns the text for people: the table, values that all rows share, and the meaning of the
// columns.
std::string readable(const ReportQuery& query, TextTable table, const Names& swept,
                     Names& remarks) {
  const std::size_t width = query.width;
  const bool usual = query.columns.empty() || adds(query.columns);
  std::string shared;
  if (width > 0 && usual) {
    Names stay = with_added(query.group, query.columns), order = kLeastImportant;
    stay.insert(stay.end(), {"id", "acc"});
    if (width == kAnyWidth)
      stay = with_added(core_columns(), stay);  // a file has the columns of all runs
    order.insert(std::ranges::find(order, "avg_forward_mem"), swept.begin(), swept.end());
    std::erase_if(order, [&](const auto& name) { return std::ranges::count(stay, name) > 0; });
    FittedTable fitted = fit_table(table, width, order, stay);
    table = std::move(fitted.table);
    if (!fitted.shared.empty()) shared = "\n" + fitted.shared + "\n";
    if (!fitted.left_out.empty()) {
      remarks.push_back(cat("report: left out, because the terminal is ", width, " columns wide: ",
                            join(fitted.left_out), "; --columns all shows every column"));
    }
  }
  Names names;
  for (const TextTable::Column& column : table.columns) names.push_back(column.name);
  std::string legend = run_legend(names);
  if (std::ranges::any_of(table.columns, &TextTable::Column::is_mean)) {
    const bool times = std::ranges::any_of(table.columns, [](const TextTable::Column& column) {
      return column.is_mean && column.is_time;
    });
    legend += cat("- n: runs in the group; mean ± standard deviation (n - 1) over them",
                  times ? "; for times the median ± the median distance from it" : "", "\n");
  }
  return to_markdown(table) + shared + (legend.empty() ? "" : "\n" + legend);
}

}  // namespace

RunReport run_report(const ReportQuery& query) {
  RunReport out;
  Names& remarks = out.remarks;
  std::vector<RunRow> rows = read_rows(query.runs);
  std::vector<RowFilter> filters;
  Names asked = query.columns;
  for (const std::string& text : query.filters) {
    filters.push_back(parse_filter(text));
    asked.push_back(filters.back().key);
  }
  if (!query.sort.empty()) asked.push_back(query.sort);
  const bool grouped = !query.group.empty();
  if (grouped || std::ranges::any_of(asked, [](const std::string& name) {
        const std::string plain = name.starts_with("+") ? name.substr(1) : name;
        return plain != "all" && find_run_column(plain) == nullptr;
      })) {
    read_configs(rows, remarks);
  }
  const std::size_t before = rows.size();
  rows = tagged(filtered(std::move(rows), filters), query.tags);
  if (rows.empty()) {
    remarks.push_back(cat("report: none of the ", before, " runs fits the filters"));
  }
  Names columns = chosen_columns(query, rows);
  const bool people = query.format == "md" || query.format == "latex";
  Names swept;
  if (people && !grouped && (query.columns.empty() || adds(query.columns))) {
    swept = swept_keys(rows);
    std::erase_if(swept, [&](const auto& key) { return std::ranges::count(columns, key) > 0; });
    const auto behind = std::ranges::find(columns, "name");
    const auto place = behind == columns.end() ? columns.begin() : behind + 1;
    columns.insert(place, swept.begin(), swept.end());
  }
  if (!grouped && !query.sort.empty()) {
    sort_rows(rows, query.sort, query.descending);
  }
  if (!grouped) {
    const std::int64_t disturbed = std::ranges::count_if(
        rows, [](const RunRow& row) { return row.has_summary && row.summary.disturbed(); });
    if (disturbed > 0) remarks.push_back(load_remark(disturbed, rows.size()));
  }
  const TextTable table =
      grouped ? grouped_table(query, rows, columns, remarks) : run_table(rows, columns);
  out.text = query.format == "csv"     ? to_csv(table)
             : query.format == "json"  ? to_json(table)
             : query.format == "latex" ? to_latex(table)
                                       : readable(query, table, swept, remarks);
  return out;
}

}  // namespace convscope
