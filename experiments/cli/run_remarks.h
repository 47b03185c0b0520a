// SPDX-License-Identifier: Apache-2.0
// run_remarks.h: the messages of `convscope run` before the first step. They say how the network is
// executed, and why the numbers of the run may be unreliable.
#pragma once

#include <string>
#include <vector>

#include "experiments/trainer/trainer.h"

namespace convscope {

// Returns lines for the terminal and for log.txt.
CONVSCOPE_API std::vector<std::string> remarks_before(const TrainingSetup& setup);

}  // namespace convscope
