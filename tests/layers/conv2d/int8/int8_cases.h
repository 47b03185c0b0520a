// SPDX-License-Identifier: Apache-2.0
// int8_cases.h: convolutions on integers, made from the test cases that all algorithms share.
#pragma once

#include <gtest/gtest.h>

#include "experiments/check/matrix/integer_case.h"

namespace convscope::testing {

using matrix::Int8Case;
using matrix::Int8Options;
using matrix::kCodeTypes;
using matrix::options_by_turns;
using matrix::with_types;

}  // namespace convscope::testing
