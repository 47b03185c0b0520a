// SPDX-License-Identifier: Apache-2.0
// adamw.cpp: Adam with decoupled weight decay, registered under its name; adam.cpp contains the
// arithmetic.
#include "optim/adam.h"

namespace convscope {

CONVSCOPE_REGISTER_OPTIMIZER(
    "adamw", {"Adam with decoupled weight decay: the decay does not pass through the mean square",
              adam_fields(),
              [](std::vector<ParameterGroup> groups, const Options& options) {
                return build_adam(std::move(groups), options, true);
              },
              0.001})

}  // namespace convscope
