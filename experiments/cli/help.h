// SPDX-License-Identifier: Apache-2.0
// help.h: the texts that `convscope` and `convscope COMMAND --help` print.
#pragma once

#include <string>

#include "experiments/cli/command_line.h"

namespace convscope {

std::string program_help(const CommandLine& line);  // what it is, what to type first, the commands
std::string command_help(const CommandLine& line, const std::string& path);  // path: "config show"

}  // namespace convscope
