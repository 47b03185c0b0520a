// SPDX-License-Identifier: Apache-2.0
// bench_deform_conv2d.h: `convscope bench deform_conv2d`: how long each algorithm of deformable
// convolution takes.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `bench`; `run` is called with what to do when it was given.
void declare_bench_deform_conv2d(CommandLine& bench, std::function<int()>& run);

}  // namespace convscope
