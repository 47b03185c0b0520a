// SPDX-License-Identifier: Apache-2.0
// help.h: the texts that `convscope` and `convscope COMMAND --help` print.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace convscope {

std::string program_help(const CLI::App& app);  // what it is, what to type first, the commands
std::string command_help(const CLI::App& app, const std::string& path);  // path: "config show"

}  // namespace convscope
