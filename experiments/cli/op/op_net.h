// SPDX-License-Identifier: Apache-2.0
// op_net.h: `convscope op net`: a whole network on NumPy files: outputs, loss, every gradient.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `op`; `run` is called with what to do when it was given.
void declare_op_net(CommandLine& op, std::function<int()>& run);

}  // namespace convscope
