// SPDX-License-Identifier: Apache-2.0
// op_sparse_conv.h: `convscope op sparse_conv`, declared among the operations of op_command.cpp.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// `run` is set when the operation is named on the command line.
void declare_op_sparse_conv(CommandLine& op, std::function<int()>& run);

}  // namespace convscope
