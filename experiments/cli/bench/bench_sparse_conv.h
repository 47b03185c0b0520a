// SPDX-License-Identifier: Apache-2.0
// bench_sparse_conv.h: `convscope bench sparse_conv`: times the algorithms of sparse convolution.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `bench`; sets `run` to the action when the subcommand was given.
void declare_bench_sparse_conv(CommandLine& bench, std::function<int()>& run);

}  // namespace convscope
