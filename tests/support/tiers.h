// SPDX-License-Identifier: Apache-2.0
// tiers.h: the kinds of numbers (tiers) on which kernels are tested, as in the test matrix.
#pragma once

#include "experiments/check/matrix/tiers.h"

namespace convscope::testing {

using namespace matrix;

}  // namespace convscope::testing
