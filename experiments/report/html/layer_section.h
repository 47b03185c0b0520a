// SPDX-License-Identifier: Apache-2.0
// layer_section.h: layers.csv on a run's page: the kernels of each layer and, if measured, its
// times as numbers, bars and shares of the step.
#pragma once

#include <string>

#include "experiments/report/run_data.h"

namespace convscope {

// Returns markup, or "" without layers.csv.
std::string layer_section(const RunData& run);

}  // namespace convscope
