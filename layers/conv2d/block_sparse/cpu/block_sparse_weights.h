// SPDX-License-Identifier: Apache-2.0
// block_sparse_weights.h: backward_weight of convolution with block-sparse weights; computes only
// the stored blocks of dw.
#pragma once

#include <cstddef>

#include "layers/conv2d/algorithm.h"

namespace convscope::block_sparse {

std::size_t sums_bytes(const Conv2dProblem& problem);
// Computes dw of the problem `computed`, which side_by_side() returned; x and dy are NCHW16c.
void sum_weights(const Conv2dBackwardWeightArgs& args, const Conv2dProblem& computed,
                 const float* x, const float* dy, float* workspace);

}  // namespace convscope::block_sparse
