// SPDX-License-Identifier: Apache-2.0
// cli.h: the program `convscope`; each subcommand is one file, and all are in one registry.
#pragma once

#include "framework/export.h"

namespace convscope {

// Runs the program with main's arguments; never throws. Returns the exit code: 0 ok, 1 run failed,
// 2 usage, 3 config, 4 data, 5 device or algorithm not available, 6 I/O, 7 regression, 8 lost
// process, 9 undecided, 130/143 interrupted.
CONVSCOPE_API int run_command_line(int argc, char** argv);

}  // namespace convscope
