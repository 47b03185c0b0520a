// SPDX-License-Identifier: Apache-2.0
// new_command.cpp: `convscope new algorithm`: writes the starter folder of a plug-in.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/plugins/starter/starter_plugin.h"
#include "framework/io/atomic_file.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string name, folder = ".";
};

int write(const Arguments& arguments) {
  const std::string problem = problem_of_new_name(arguments.name);
  if (!problem.empty()) {
    fail_usage("new algorithm", cat("expected ", problem, ", got '", arguments.name, "'"));
  }
  const fs::path folder = (fs::path(arguments.folder) / arguments.name).lexically_normal();
  std::error_code error;
  if (fs::exists(fs::symlink_status(folder, error))) {
    fail(ErrorKind::kIo, "new algorithm",
         cat("expected a new name, because no file is overwritten, but ", folder.string(),
             " exists; choose another name or --dir"));
  }
  fs::create_directories(folder, error);
  if (error) {
    fail(ErrorKind::kIo, "new algorithm",
         cat("expected to make the folder ", folder.string(), ", got: ", error.message()));
  }
  for (const StarterFile& file : starter_plugin(arguments.name, package_of_program())) {
    write_file((folder / file.name).string(), file.text);
    print_result(cat("wrote ", (folder / file.name).string(), "\n"));
  }
  std::fflush(stdout);  // prints the file names before the next steps
  const std::string at = folder.string();
  print_remark(cat("next: cmake -S ", at, " -B ", at, "/build && cmake --build ", at, "/build"));
  print_remark(cat("then: convscope check conv2d ", arguments.name, " --plugin ", at, "/build/",
                   arguments.name, ".so"));
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  CommandLine* const algorithm =
      app.add_subcommand("algorithm", "Create a custom convolution algorithm as a plug-in.");
  app.require_subcommand(1);
  algorithm
      ->add_option("NAME", arguments->name,
                   "name of the algorithm: lower-case letters, digits and _")
      ->required();
  algorithm->add_option("--dir", arguments->folder, "parent of the new folder NAME")
      ->type_name("DIR")
      ->capture_default_str();
  return [arguments] { return write(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("new",
                           {.summary = "Create the source of a custom algorithm (a plug-in).",
                            .usage = "new algorithm NAME [--dir DIR]",
                            .examples = {"new algorithm mine",
                                         "new algorithm mine --dir ~/algorithms"},
                            .order = 53,
                            .declare = convscope::declare})
