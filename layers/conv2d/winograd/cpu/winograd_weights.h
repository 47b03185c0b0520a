// SPDX-License-Identifier: Apache-2.0
// winograd_weights.h: backward_weight of Winograd's convolution with tiles of m x m outputs.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::winograd {

void weight_gradient(int m, const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::winograd
