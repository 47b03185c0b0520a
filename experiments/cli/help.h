// SPDX-License-Identifier: Apache-2.0
// help.h: the texts of `convscope` and `convscope COMMAND --help`.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/command_line.h"

namespace convscope {

std::string program_help(const CommandLine& line);  // summary, first command, list of commands
std::string command_help(const CommandLine& line, const std::string& path);  // path: "config show"

// The rows of the help, which the manual page uses too. A row has a name, with its short form and
// value type, and a meaning.
struct HelpRow {
  std::string left, right;
};
std::vector<HelpRow> option_rows(const CommandLine& line, bool positional);
std::string usage_of(const CommandLine& line, const std::string& path);

}  // namespace convscope
