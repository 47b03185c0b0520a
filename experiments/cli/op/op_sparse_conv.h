// SPDX-License-Identifier: Apache-2.0
// op_sparse_conv.h: `convscope op sparse_conv`: sparse convolution and its gradients on NumPy
// files.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `op`; sets `run` to the action when the subcommand was given.
void declare_op_sparse_conv(CommandLine& op, std::function<int()>& run);

}  // namespace convscope
