// SPDX-License-Identifier: Apache-2.0
// op_lsq.h: `convscope op lsq`: learned step size quantisation and its gradients on NumPy files.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace convscope {

// Adds the subcommand to `op`; `run` is called with what to do when it was given.
void declare_op_lsq(CLI::App& op, std::function<int()>& run);

}  // namespace convscope
