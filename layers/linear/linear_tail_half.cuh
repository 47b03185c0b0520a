// SPDX-License-Identifier: Apache-2.0
// linear_tail_half.cuh: the launch of linear_tail_cuda.cu on tensor cores.
// Read next  linear_tail_half_cuda.cu
#pragma once

#include "layers/linear/linear_tail.h"

namespace convscope {

// Returns false and queues nothing if `operand_type` is not half precision, operands exceed
// shared memory, or images are too few.
bool queue_half_tail(const LinearTailArgs& args);

// Returns how many images a block processes: the smallest of 1, 2, 4 and 8 with which 132 blocks
// (one for each SM) suffice; 8 if none of them does.
int tail_images_of_block(std::int64_t n);

}  // namespace convscope
