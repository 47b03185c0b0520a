// SPDX-License-Identifier: Apache-2.0
// carveout.cuh: sets how an SM divides its memory between L1 and shared memory.
//
// While blocks run on an SM, the SM's division between L1 and shared memory is fixed. For each
// kernel, the driver chooses the division with the smallest sufficient shared memory. A kernel that
// needs more shared memory cannot start on an SM where another kernel runs. With programmatic
// dependent launch, it then waits for an empty SM. So kernels that should overlap all request the
// same division, the largest shared memory.
// Read next  launch.cuh
#pragma once

#include <utility>

#include "framework/cuda/launch.cuh"

namespace convscope {

// Launches a kernel that may run on an SM together with the kernels before and after it.
template <class... Parameters, class... Arguments>
void launch_beside_others(void (*kernel)(Parameters...), const LaunchShape& shape,
                          Arguments&&... arguments) {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  CONVSCOPE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared));
#endif
  launch(kernel, shape, std::forward<Arguments>(arguments)...);
}

}  // namespace convscope
