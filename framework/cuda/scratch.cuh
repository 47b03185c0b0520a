// SPDX-License-Identifier: Apache-2.0
// scratch.cuh: device memory for the partial sums of one operation.
//
// One block of memory exists for the life of the process. All operations run in order on one
// stream, so each operation may use the whole block. The address never changes, so a CUDA graph can
// use the block whenever it is replayed.
#pragma once

#include <cstddef>

namespace convscope {

inline constexpr std::size_t kScratchBytes = std::size_t{8} << 20;

// Returns a pointer to `bytes` bytes, at most kScratchBytes. Their content is undefined after the
// calling operation.
void* cuda_scratch(std::size_t bytes);

template <class T>
T* cuda_scratch_of(std::size_t count) {
  return static_cast<T*>(cuda_scratch(count * sizeof(T)));
}

}  // namespace convscope
