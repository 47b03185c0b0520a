// SPDX-License-Identifier: Apache-2.0
// scratch.cuh: device memory for the partial sums of one operation.
//
// One block for the life of the process: all work is queued in order, so the next operation may use
// it as soon as it is queued, and a recording that replays later finds it where it was.
#pragma once

#include <cstddef>

namespace convscope {

inline constexpr std::size_t kScratchBytes = std::size_t{8} << 20;

// At most kScratchBytes. Holds nothing beyond the operation that asked.
void* cuda_scratch(std::size_t bytes);

template <class T>
T* cuda_scratch_of(std::size_t count) {
  return static_cast<T*>(cuda_scratch(count * sizeof(T)));
}

}  // namespace convscope
