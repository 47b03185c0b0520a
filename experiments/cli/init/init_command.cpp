// SPDX-License-Identifier: Apache-2.0
// init_command.cpp: `convscope init`: writes a starter config.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "datasets/dataset.h"
#include "experiments/cli/command.h"
#include "experiments/config/starter/starter_config.h"
#include "framework/io/atomic_file.h"
#include "layers/layer_types.h"

namespace convscope {
namespace {

struct Arguments {
  std::string file, data = "synthetic_digits", model = "lenet5";
  bool force = false;
};

bool needs_files(const std::string& data) {
  return std::ranges::any_of(dataset_types().get(data).fields,
                             [](const OptionField& field) { return field.name == "root"; });
}

int init(const Arguments& arguments) {
  const std::string file =
      arguments.file.empty() ? cat(arguments.data, "_", arguments.model, ".yaml") : arguments.file;
  const bool to_stdout = file == "-";
  const std::string text = starter_config(
      {.data = arguments.data,
       .model = arguments.model,
       .file = to_stdout ? cat(arguments.data, "_", arguments.model, ".yaml") : file});
  if (to_stdout) {
    print_result(text);
    return 0;
  }
  std::error_code error;
  if (!arguments.force && std::filesystem::exists(file, error)) {
    fail(ErrorKind::kIo, "init",
         cat("expected a new file, because nothing is overwritten without --force, got ", file));
  }
  write_file(file, text);
  if (global_options().verbosity < 0) return 0;
  std::cout << "wrote " << file << "\n";
  std::string next;
  if (needs_files(arguments.data)) next = cat("convscope data fetch ", arguments.data, " && ");
  std::fprintf(stderr, "next: %sconvscope run %s\n", next.c_str(), file.c_str());
  return 0;
}

std::function<int()> declare_init(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("FILE", arguments->file, "output file (default DATA_MODEL.yaml); -: stdout");
  app.add_option("--data", arguments->data, join(dataset_types().names()))
      ->type_name("DATA")
      ->suggest(dataset_types().names())
      ->capture_default_str();
  app.add_option("--model", arguments->model, join(model_types().names()))
      ->type_name("MODEL")
      ->suggest(model_types().names())
      ->capture_default_str();
  app.add_flag("--force", arguments->force, "permission to overwrite an existing file");
  return [arguments] { return init(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("init",
                           {.summary = "Write a commented config for a data set and a network.",
                            .usage = "init [FILE] [--data DATA] [--model MODEL] [--force]",
                            .examples = {"init my.yaml --data mnist --model lenet5",
                                         "init - --data cifar10 --model resnet18"},
                            .order = 8,
                            .group = "Train",
                            .declare = convscope::declare_init})
