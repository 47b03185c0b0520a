// SPDX-License-Identifier: Apache-2.0
// man_page.h: the manual page convscope(1) in roff, from the declared commands and options, with
// the words of the help.
#pragma once

#include <string>

#include "experiments/cli/command_line.h"
#include "framework/export.h"

namespace convscope {

CONVSCOPE_API std::string man_page(const CommandLine& program);

}  // namespace convscope
