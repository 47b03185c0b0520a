// SPDX-License-Identifier: Apache-2.0
// op_deform_conv2d.h: `convscope op deform_conv2d`: deformable convolution and its gradients on
// NumPy files.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds the subcommand to `op`; sets `run` to the action when the subcommand was given.
void declare_op_deform_conv2d(CommandLine& op, std::function<int()>& run);

}  // namespace convscope
