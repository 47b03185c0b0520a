// SPDX-License-Identifier: Apache-2.0
// help_command.cpp: `convscope help [COMMAND...]`: prints the same as
// `convscope [COMMAND...] --help`.
#include <iostream>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/help.h"
#include "experiments/run_folder/user_words.h"

namespace convscope {
namespace {

int help(const CommandLine& program, const std::vector<std::string>& words) {
  const CommandLine* here = &program;
  std::string path;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const CommandLine* next = nullptr;
    for (const CommandLine& nested : here->nested()) {
      names.push_back(nested.name());
      if (nested.name() == word) next = &nested;
    }
    if (next == nullptr) {
      fail(ErrorKind::kInvalid, "help",
           cat(path.empty() ? "" : cat(path, ": "), "unknown command '", word, "'",
               did_you_mean(word.substr(0, 100), names),
               names.empty() ? "" : cat(" (known: ", join(names), ")")));
    }
    here = next;
    path += (path.empty() ? "" : " ") + word;
  }
  std::cout << (path.empty() ? program_help(program) : command_help(*here, path));
  return 0;
}

std::function<int()> declare_help(CommandLine& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  app.add_option("COMMAND", *words, "command, such as run or config show");
  return [words, &app] { return help(*app.outer(), *words); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("help", {.summary = "Print this help, or the help of a command.",
                                    .usage = "help [COMMAND...]",
                                    .examples = {"help run", "help config show"},
                                    .order = 1,
                                    .declare = convscope::declare_help})
