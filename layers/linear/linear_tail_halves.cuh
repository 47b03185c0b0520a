// SPDX-License-Identifier: Apache-2.0
// linear_tail_halves.cuh: the launch of linear_tail_cuda.cu on tensor cores.
// Read next  linear_tail_halves_cuda.cu
#pragma once

#include "layers/linear/linear_tail.h"

namespace convscope {

// Returns false and queues nothing if `factors` is not half precision, operands do not fit into
// shared memory, or images are too few.
bool queue_tail_of_halves(const LinearTailArgs& args);

// Returns how many images a block processes: as few as give each of 132 SMs a block, at most 8.
int tail_images_of_block(std::int64_t n);

}  // namespace convscope
