// SPDX-License-Identifier: Apache-2.0
// bench_sparse_conv.h: `convscope bench sparse_conv`: how long each algorithm of sparse convolution
// takes.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `bench`; `run` is called with what to do when it was given.
void declare_bench_sparse_conv(CommandLine& bench, std::function<int()>& run);

}  // namespace convscope
