// SPDX-License-Identifier: Apache-2.0
// help.h: the texts that `convscope` and `convscope COMMAND --help` print.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/command_line.h"

namespace convscope {

std::string program_help(const CommandLine& line);  // what it is, what to type first, the commands
std::string command_help(const CommandLine& line, const std::string& path);  // path: "config show"

// What the texts are made of, for the manual page: a name with its short form and the type of its
// value, and what it means.
struct HelpRow {
  std::string left, right;
};
std::vector<HelpRow> option_rows(const CommandLine& line, bool positional);
std::string usage_of(const CommandLine& line, const std::string& path);

}  // namespace convscope
