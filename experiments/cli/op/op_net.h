// SPDX-License-Identifier: Apache-2.0
// op_net.h: `convscope op net`: a whole network on NumPy files: outputs, loss, all gradients.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `op`; sets `run` to the action when the subcommand was given.
void declare_op_net(CommandLine& op, std::function<int()>& run);

}  // namespace convscope
