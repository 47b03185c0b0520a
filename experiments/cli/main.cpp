// SPDX-License-Identifier: Apache-2.0
#include "experiments/cli/cli.h"

int main(int argc, char** argv) { return convscope::run_command_line(argc, argv); }
