// SPDX-License-Identifier: Apache-2.0
#include "experiments/cli/cli.h"

namespace convscope {

int run_command_line(int, char**) { return 2; }

}  // namespace convscope
