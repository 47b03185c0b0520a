// SPDX-License-Identifier: Apache-2.0
// tiers.h: the kinds of numbers that kernels are tested on: those of the matrix.
#pragma once

#include "experiments/check/matrix/tiers.h"

namespace convscope::testing {

using namespace matrix;

}  // namespace convscope::testing
