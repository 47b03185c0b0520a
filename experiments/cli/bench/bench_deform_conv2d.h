// SPDX-License-Identifier: Apache-2.0
// bench_deform_conv2d.h: `convscope bench deform_conv2d`: times the algorithms of deformable
// convolution.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `bench`; sets `run` to the action when the subcommand was given.
void declare_bench_deform_conv2d(CommandLine& bench, std::function<int()>& run);

}  // namespace convscope
