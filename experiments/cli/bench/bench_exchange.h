// SPDX-License-Identifier: Apache-2.0
// bench_exchange.h: `convscope bench exchange`: times sums over processes.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `bench`; sets `run` to the action when the subcommand was given.
void declare_bench_exchange(CommandLine& bench, std::function<int()>& run);

}  // namespace convscope
