// SPDX-License-Identifier: Apache-2.0
// info_command.cpp: `convscope info`: what this build is, what this machine offers.
#include <CLI/CLI.hpp>
#include <iostream>

#include "experiments/cli/command.h"
#include "framework/cpu_isa.h"

namespace convscope {
namespace {

std::function<int()> declare(CLI::App&) {
  return [] {
    std::cout << "convscope " CONVSCOPE_VERSION "\ncpu " << cpu_features() << "\n";
    return 0;
  };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("info", {.summary = "version, machine, and all that is registered",
                                    .usage = "info [--json]",
                                    .examples = {"info"},
                                    .order = 60,
                                    .declare = convscope::declare})
