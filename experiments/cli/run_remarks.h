// SPDX-License-Identifier: Apache-2.0
// run_remarks.h: the messages of `convscope run` before the first step: how the network is
// executed, and what weakens the resulting numbers.
#pragma once

#include <string>
#include <vector>

#include "experiments/trainer/trainer.h"

namespace convscope {

// Returns lines for the terminal and for log.txt.
CONVSCOPE_API std::vector<std::string> remarks_before(const TrainingSetup& setup);

}  // namespace convscope
