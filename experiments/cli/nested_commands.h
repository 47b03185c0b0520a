// SPDX-License-Identifier: Apache-2.0
// nested_commands.h: the commands of `convscope bench` and `convscope op` that belong to no
// operator.
#pragma once

#include <functional>

#include "experiments/cli/command_line.h"

namespace convscope {

// Adds a nested command to its outer one. Parsing sets `run` to the action when the command was
// given.
void declare_bench_net(CommandLine& bench, std::function<int()>& run);
void declare_bench_sparse_net(CommandLine& bench, std::function<int()>& run);
void declare_bench_exchange(CommandLine& bench, std::function<int()>& run);
void declare_op_lsq(CommandLine& op, std::function<int()>& run);
void declare_op_net(CommandLine& op, std::function<int()>& run);

}  // namespace convscope
