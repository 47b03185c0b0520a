// SPDX-License-Identifier: Apache-2.0
// man_command.cpp: `convscope man`: the manual page, for `convscope man | man -l -`.
#include <iostream>

#include "experiments/cli/command.h"
#include "experiments/cli/guide/man_page.h"

namespace convscope {
namespace {

std::function<int()> declare_man(CommandLine& app) {
  return [&app] {
    print_result(man_page(*app.outer()));
    return 0;
  };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("man", {.summary = "Print the manual page (roff).",
                                   .usage = "man",
                                   .examples = {"man | man -l -"},
                                   .order = 91,
                                   .declare = convscope::declare_man})
