// SPDX-License-Identifier: Apache-2.0
// op_net.h: `convscope op net`: a whole network on NumPy files: outputs, loss, every gradient.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace convscope {

// Adds the subcommand to `op`; `run` is called with what to do when it was given.
void declare_op_net(CLI::App& op, std::function<int()>& run);

}  // namespace convscope
