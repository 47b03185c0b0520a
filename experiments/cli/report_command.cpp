// SPDX-License-Identifier: Apache-2.0
// report_command.cpp: `convscope report`: the table of runs.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/report/run_table.h"
#include "experiments/report/table/fit_table.h"
#include "experiments/report/table/latex_table.h"
#include "experiments/report/table/row_filter.h"
#include "experiments/report/table/row_groups.h"
#include "experiments/report/table/run_columns.h"
#include "experiments/run_folder/run_search.h"
#include "framework/io/atomic_file.h"

namespace convscope {
namespace {

using Names = std::vector<std::string>;

struct ReportArguments {
  Names runs, columns, filters, group, tags;
  std::string format = "md", output, sort;
  bool descending = false;
};

// What a terminal that is too narrow does without, first to last.
const Names kLeastImportant = {"threads",          "kernel_size",  "algorithm",  "device",
                               "avg_forward_mem",  "execution",    "batch_size", "best_acc",
                               "avg_backward_mem", "avg_backward", "step",       "avg_forward",
                               "images_per_s",     "reason",       "name",       "state",
                               "weight_bytes",     "avg_inference"};

void remark(const std::string& text) { print_remark(text); }

std::vector<RunRow> read_rows(const Names& given) {
  std::vector<RunRow> rows;
  for (const std::string& word : given) {
    std::vector<std::string> found = find_runs(word);
    std::error_code error;
    if (found.empty() && !std::filesystem::is_directory(word, error)) {
      fail(ErrorKind::kIo, "report",
           cat("expected a run folder or a folder of runs, because the table is made from them, "
               "got ",
               word, ", which is no folder",
               word.ends_with(".json") ? "; convscope plot and compare read files of bench" : ""));
    }
    if (found.empty()) {
      fail(ErrorKind::kIo, "report", cat("expected at least one run in ", word, ", got none"));
    }
    for (const std::string& run : found) rows.push_back(read_run_row(run));
  }
  return rows;
}

// Each takes a moment, so only when somebody asks for a key.
void read_configs(std::vector<RunRow>& rows) {
  std::size_t broken = 0;
  for (RunRow& row : rows) {
    const std::string problem = read_config(row);
    if (!problem.empty() && ++broken <= 3) remark(cat("report: ", problem));
  }
  if (broken > 3) remark(cat("report: ", broken - 3, " more configs cannot be read"));
}

// "+optim.lr,tags": these and the ones that are there anyway.
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

Names chosen_columns(const ReportArguments& arguments, const std::vector<RunRow>& rows) {
  const bool people = arguments.format == "md" || arguments.format == "latex";
  Names usual = people ? reading_columns(rows) : all_columns();
  if (!arguments.group.empty()) {
    std::erase_if(usual, [](const std::string& name) { return !find_run_column(name)->measured; });
  }
  Names out = arguments.columns;
  if (out.empty()) out = usual;
  if (adds(out)) out = with_added(usual, arguments.columns);
  if (out == Names{"all"}) out = all_columns();
  if (!arguments.group.empty()) {
    std::erase_if(out, [&](const std::string& name) {
      return std::ranges::count(arguments.group, name) > 0 || name == "n";
    });
  }
  return out;
}

TextTable grouped_table(const ReportArguments& arguments, const std::vector<RunRow>& rows,
                        const Names& columns) {
  GroupedRuns groups = group_rows(rows, arguments.group, columns);
  if (!groups.varies.empty()) {
    remark(cat("report: runs of one group differ in more than the seed: ", join(groups.varies)));
  }
  if (groups.unfinished > 0) {
    remark(cat("report: ", groups.unfinished,
               groups.unfinished == 1 ? " run that counts is" : " runs that count are",
               " not done; --filter state=DONE leaves them out"));
  }
  if (!arguments.sort.empty()) sort_table(groups.table, arguments.sort, arguments.descending);
  return groups.table;
}

// For people: the table, what all rows share, and what the columns mean.
std::string readable(const ReportArguments& arguments, TextTable table) {
  const std::size_t width = arguments.output.empty() ? terminal_width() : 0;
  const bool usual = arguments.columns.empty() || adds(arguments.columns);
  std::string shared;
  if (width > 0 && usual) {
    Names stay = with_added(arguments.group, arguments.columns), order = kLeastImportant;
    stay.insert(stay.end(), {"id", "acc"});
    std::erase_if(order, [&](const auto& name) { return std::ranges::count(stay, name) > 0; });
    FittedTable fitted = fit_table(table, width, order, stay);
    table = std::move(fitted.table);
    if (!fitted.shared.empty()) shared = "\n" + fitted.shared + "\n";
    if (!fitted.left_out.empty()) {
      remark(cat("report: left out, because the terminal is ", width,
                 " columns wide: ", join(fitted.left_out), "; --columns all shows every column"));
    }
  }
  Names names;
  for (const TextTable::Column& column : table.columns) names.push_back(column.name);
  std::string legend = run_legend(names);
  if (std::ranges::any_of(table.columns, &TextTable::Column::is_mean)) {
    legend += "- n: runs in the group; ±: standard deviation (n - 1) over them\n";
  }
  return to_markdown(table) + shared + (legend.empty() ? "" : "\n" + legend);
}

int report(const ReportArguments& arguments) {
  std::vector<RunRow> rows = read_rows(arguments.runs);
  std::vector<RowFilter> filters;
  Names asked = arguments.columns;
  for (const std::string& text : arguments.filters) {
    filters.push_back(parse_filter(text));
    asked.push_back(filters.back().key);
  }
  if (!arguments.sort.empty()) asked.push_back(arguments.sort);
  const bool grouped = !arguments.group.empty();
  if (grouped || std::ranges::any_of(asked, [](const std::string& name) {
        const std::string plain = name.starts_with("+") ? name.substr(1) : name;
        return plain != "all" && find_run_column(plain) == nullptr;
      })) {
    read_configs(rows);
  }
  const std::size_t before = rows.size();
  rows = tagged(filtered(std::move(rows), filters), arguments.tags);
  if (rows.empty()) remark(cat("report: none of the ", before, " runs fits the filters"));
  const Names columns = chosen_columns(arguments, rows);
  if (!grouped && !arguments.sort.empty()) {
    sort_rows(rows, arguments.sort, arguments.descending);
  }
  const TextTable table =
      grouped ? grouped_table(arguments, rows, columns) : run_table(rows, columns);
  const std::string text = arguments.format == "csv"     ? to_csv(table)
                           : arguments.format == "json"  ? to_json(table)
                           : arguments.format == "latex" ? to_latex(table)
                                                         : readable(arguments, table);
  if (arguments.output.empty()) {
    print_result(text);
  } else {
    write_file(arguments.output, text);
  }
  return 0;
}

std::function<int()> declare_report(CommandLine& app) {
  auto arguments = std::make_shared<ReportArguments>();
  app.add_option("RUN", arguments->runs,
                 "run folders, folders of runs (runs/<name>), or runs/ as a whole")
      ->required()
      ->type_name("");
  app.add_option("-f,--format", arguments->format, "md, csv, json or latex")
      ->type_name("F")
      ->capture_default_str()
      ->one_of({"md", "csv", "json", "latex"});
  app.add_option("-o,--output", arguments->output, "write to this file, not to stdout")
      ->type_name("FILE");
  app.add_option("--columns", arguments->columns,
                 "columns or config keys with commas (id,optim.lr,acc); +KEY,... adds them to the "
                 "usual ones; all (csv and json give all by default)")
      ->type_name("A,B,...")
      ->delimiter(',')
      ->one_at_a_time();
  app.add_option(
         "--filter", arguments->filters,
         "show runs that fit: 'optim.lr<0.1', 'acc>=98', 'name~lenet'; several must all fit")
      ->type_name("EXPR")
      ->one_at_a_time();
  app.add_option("--tag", arguments->tags, "show runs with this tag")
      ->type_name("NAME")
      ->one_at_a_time();
  app.add_option("--group", arguments->group,
                 "one row for the runs with the same values of these keys: mean ± deviation")
      ->type_name("KEY,...")
      ->delimiter(',')
      ->one_at_a_time();
  app.add_option("--sort", arguments->sort, "column or config key to sort by")->type_name("COLUMN");
  app.add_flag("--descending", arguments->descending, "largest first");
  return [arguments] { return report(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "report", {.summary = "table of runs: speed, memory, accuracy, any key of their configs",
               .usage = "report RUN... [-f md|csv|json|latex] [--columns A,B] [--filter EXPR] "
                        "[--group KEY] [--sort COLUMN]",
               .examples = {"report runs/", "report runs/quickstart --sort acc --descending -f csv",
                            "report runs/ --columns +optim.lr --filter 'acc>=98' --sort optim.lr",
                            "report runs/ --group model.type,optim.lr -f latex"},
               .order = 30,
               .declare = convscope::declare_report})
