// SPDX-License-Identifier: Apache-2.0
// policy.h: the user's choice of a convolution algorithm for each direction.
#pragma once

#include "layers/dispatch/policy.h"

namespace convscope {

using Conv2dPolicy = AlgorithmPolicy;

}  // namespace convscope
