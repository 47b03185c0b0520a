// SPDX-License-Identifier: Apache-2.0
// report_command.cpp: `convscope report`: the table of runs.
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/report/run_report.h"
#include "experiments/report/table/fit_text.h"
#include "framework/io/atomic_file.h"
#include "framework/io/output_place.h"

namespace convscope {
namespace {

struct ReportArguments : ReportQuery {
  std::string output;
};

int report(ReportArguments arguments) {
  const std::size_t width = arguments.output.empty() ? screen_width(1) : 0;
  arguments.width = width == 0 ? kAnyWidth : width;
  check_output_files({arguments.output});
  const RunReport made = run_report(arguments);
  for (const std::string& line : made.remarks) print_remark(line);
  if (arguments.output.empty()) {
    arguments.format == "md" ? print_screen(made.text) : print_result(made.text);
  } else {
    write_file(arguments.output, made.text);
  }
  return 0;
}

std::function<int()> declare_report(CommandLine& app) {
  auto arguments = std::make_shared<ReportArguments>();
  app.add_option("RUN", arguments->runs,
                 "run folders, folders of runs (runs/<name>), or runs/ as a whole")
      ->required();
  app.add_option("-f,--format", arguments->format, "format of the table: md, csv, json or latex")
      ->type_name("F")
      ->capture_default_str()
      ->one_of({"md", "csv", "json", "latex"});
  app.add_option("-o,--output", arguments->output, "output file (default: stdout)")
      ->type_name("FILE")
      ->output_file();
  app.add_option("--columns", arguments->columns,
                 "columns or config keys, joined by commas (id,optim.lr,acc); +KEY,... adds to the "
                 "usual columns; all: every column (default for csv and json)")
      ->type_name("A,B,...")
      ->delimiter(',')
      ->one_at_a_time();
  app.add_option("--filter", arguments->filters,
                 "condition on the runs: 'optim.lr<0.1', 'acc>=98', 'name~lenet'; of several, all "
                 "must hold")
      ->type_name("EXPR")
      ->one_at_a_time();
  app.add_option("--tag", arguments->tags, "only runs with this tag")
      ->type_name("NAME")
      ->one_at_a_time();
  app.add_option("--group", arguments->group,
                 "keys to group by: one row for equal values, with mean ± standard deviation")
      ->type_name("KEY,...")
      ->delimiter(',')
      ->one_at_a_time();
  app.add_option("--sort", arguments->sort, "column or config key to sort by")->type_name("COLUMN");
  app.add_flag("--descending", arguments->descending, "sort order: largest first");
  return [arguments] { return report(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "report", {.summary = "Print a table of runs: speed, memory, accuracy, config keys.",
               .usage = "report RUN... [-f md|csv|json|latex] [--columns A,B] [--filter EXPR] "
                        "[--group KEY] [--sort COLUMN]",
               .examples = {"report runs/", "report runs/quickstart --sort acc --descending -f csv",
                            "report runs/ --columns +optim.lr --filter 'acc>=98' --sort optim.lr",
                            "report runs/ --group model.type,optim.lr -f latex"},
               .order = 30,
               .group = "See results",
               .declare = convscope::declare_report})
