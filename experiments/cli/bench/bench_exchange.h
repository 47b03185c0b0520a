// SPDX-License-Identifier: Apache-2.0
// bench_exchange.h: `convscope bench exchange`: how long sums over processes take.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `bench`; `run` is called with what to do when it was given.
void declare_bench_exchange(CommandLine& bench, std::function<int()>& run);

}  // namespace convscope
