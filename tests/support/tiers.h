// SPDX-License-Identifier: Apache-2.0
// tiers.h: the kinds of numbers with which kernels are tested: those of the test matrix.
#pragma once

#include "experiments/check/matrix/tiers.h"

namespace convscope::testing {

using namespace matrix;

}  // namespace convscope::testing
