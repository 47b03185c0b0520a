// SPDX-License-Identifier: Apache-2.0
// nchw16c_pass.h: convolution on tensors in NCHW16c (layers/dispatch/activation_layout.h). The
// algorithms `direct` and `gemm_1x1` call these functions for problems with layout=nchw16c.
// (Winograd's algorithms call supports(), too.)
//
// No tensor is copied, transposed or padded: tiles read x and dy in place and store whole blocks.
// Only w is packed, in the order in which a tile reads it.
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::nchw16c {

// Checks whether the problem has f32, and one group or groups of whole blocks.
Conv2dSupport supports(const Conv2dProblem& problem);
Conv2dCost cost(const Conv2dProblem& problem, Direction direction);
std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction);
std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction);
void prepare_weights(const Conv2dPrepareArgs& args);
void forward(const Conv2dForwardArgs& args);
void backward_data(const Conv2dBackwardDataArgs& args);
void backward_weight(const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::nchw16c
