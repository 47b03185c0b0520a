// SPDX-License-Identifier: Apache-2.0
// report_command.cpp: `convscope report`: the table of runs.
#include <cstdio>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/report/run_table.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_search.h"
#include "framework/io/atomic_file.h"

namespace convscope {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string format = "md", output, sort;
  std::vector<std::string> columns;
  bool descending = false;
};

int report(const ReportArguments& arguments) {
  std::vector<RunRow> rows;
  for (const std::string& given : arguments.runs) {
    std::vector<std::string> found = find_runs(given);
    std::error_code error;
    if (found.empty() && !std::filesystem::is_directory(given, error)) {
      fail(ErrorKind::kIo, "report",
           cat("expected a run folder or a folder of runs, because the table is made from them, "
               "got ",
               given, ", which is no folder"));
    }
    if (found.empty()) {
      fail(ErrorKind::kIo, "report", cat("expected at least one run in ", given, ", got none"));
    }
    for (const std::string& run : found) rows.push_back(read_run_row(run));
  }
  if (!arguments.sort.empty()) sort_rows(rows, arguments.sort, arguments.descending);

  std::vector<std::string> columns = arguments.columns;
  if (columns.empty()) columns = arguments.format == "md" ? reading_columns(rows) : all_columns();
  if (columns == std::vector<std::string>{"all"}) columns = all_columns();
  std::string text;
  if (arguments.format == "csv") {
    text = to_csv(rows, columns);
  } else if (arguments.format == "json") {
    text = to_json(rows, columns);
  } else {
    text = to_markdown(rows, columns);
  }
  if (arguments.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
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
  app.add_option("-f,--format", arguments->format, "md, csv or json")
      ->type_name("F")
      ->capture_default_str()
      ->one_of({"md", "csv", "json"});
  app.add_option("-o,--output", arguments->output, "write to this file, not to stdout")
      ->type_name("FILE");
  app.add_option("--columns", arguments->columns,
                 "names with commas, or all (csv and json give all by default)")
      ->type_name("A,B,...")
      ->delimiter(',');
  app.add_option("--sort", arguments->sort, "column to sort by")->type_name("COLUMN");
  app.add_flag("--descending", arguments->descending, "largest first");
  return [arguments] { return report(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("report",
                           {.summary = "table of runs: speed, memory, accuracy",
                            .usage = "report RUN... [-f md|csv|json] [-o FILE] [--sort COLUMN]",
                            .examples = {"report runs/",
                                         "report runs/quickstart --sort acc "
                                         "--descending -f csv"},
                            .order = 30,
                            .declare = convscope::declare_report})
