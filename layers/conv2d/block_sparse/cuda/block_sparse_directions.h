// SPDX-License-Identifier: Apache-2.0
// block_sparse_directions.h: dw and dx of block_sparse, called by block_sparse_cuda.cu.
#pragma once

#include <cstddef>

#include "layers/conv2d/algorithm.h"

namespace convscope::block_sparse {

// Computes dw of the stored blocks (block_sparse_weights_cuda.cu). The next two functions return
// its workspace and its estimated time.
void weights_from_lists(const Conv2dBackwardWeightArgs& args);
std::size_t weights_workspace_bytes(const Conv2dProblem& problem);
double weights_us(const Conv2dProblem& problem);

// Computes dx (block_sparse_data_cuda.cu).
void data_from_pieces(const Conv2dBackwardDataArgs& args);
void prepare_data(const Conv2dPrepareArgs& args);
std::size_t data_prepared_bytes(const Conv2dProblem& problem);
double data_us(const Conv2dProblem& problem);

}  // namespace convscope::block_sparse
