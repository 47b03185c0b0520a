// SPDX-License-Identifier: Apache-2.0
// bench_net.h: `convscope bench net`: inference and training steps of a whole network.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `bench`; sets `run` to the action when the subcommand was given.
void declare_bench_net(CommandLine& bench, std::function<int()>& run);

}  // namespace convscope
