// SPDX-License-Identifier: Apache-2.0
// index_command.cpp: `convscope index`: one page about all runs below a folder.
#include <cstdio>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/report/index/index_page.h"
#include "experiments/run_folder/files/own_file.h"
#include "framework/io/atomic_file.h"
#include "framework/io/output_place.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

struct IndexArguments {
  std::string folder = "runs", output;
};

int write_index(const IndexArguments& arguments) {
  std::error_code error;
  if (!fs::is_directory(arguments.folder, error)) {
    fail(ErrorKind::kIo, "index",
         cat("expected a folder of runs, because the page lists the runs in it, got ",
             arguments.folder, ", which is no folder; `convscope run` makes runs/"));
  }
  check_output_files({fs::is_directory(arguments.output, error) ? "" : arguments.output});
  const RunIndex index = read_run_index(arguments.folder);
  if (index.runs.empty() && index.sweeps.empty()) {
    fail(ErrorKind::kIo, "index",
         cat("expected at least one run in ", arguments.folder, ", got none"));
  }
  fs::path page = arguments.output;
  if (arguments.output.empty()) page = arguments.folder;
  if (fs::is_directory(page, error)) {
    page = arguments.output.empty() ? fs::path(own_path(page.string(), "index.html"))
                                    : page / "index.html";
  }
  const std::string whole = fs::absolute(arguments.folder).lexically_normal().string();
  const fs::path named = whole.ends_with('/') ? fs::path(whole).parent_path() : fs::path(whole);
  page = page.lexically_normal();
  const std::string text = index_page("Runs in " + named.filename().string(), index,
                                      page.has_parent_path() ? page.parent_path().string() : ".");
  write_file(page.string(), text);
  print_result(page.string() + "\n");
  if (global_options().verbosity >= 0) {
    const auto count = [](std::size_t number, const char* what) {
      return cat(number, " ", what, number == 1 ? "" : "s");
    };
    std::fprintf(stderr, "note: it lists %s and %s; open it in a browser\n",
                 count(index.runs.size(), "run").c_str(),
                 count(index.sweeps.size(), "sweep").c_str());
  }
  return 0;
}

std::function<int()> declare_index(CommandLine& app) {
  auto arguments = std::make_shared<IndexArguments>();
  app.add_option("DIR", arguments->folder, "folder of runs")->capture_default_str();
  app.add_option("-o,--output", arguments->output,
                 "output page (default: index.html in DIR); its links to the runs are relative")
      ->type_name("FILE");
  return [arguments] { return write_index(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("index",
                           {.summary = "Make an HTML page that lists and searches all runs.",
                            .usage = "index [DIR] [-o FILE]",
                            .examples = {"index", "index runs/my_sweep -o sweep.html"},
                            .order = 36,
                            .declare = convscope::declare_index})
