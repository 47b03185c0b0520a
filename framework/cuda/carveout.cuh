// SPDX-License-Identifier: Apache-2.0
// carveout.cuh: the division of an SM's memory between L1 and shared memory.
//
// An SM keeps one division while blocks run on it. The driver chooses the smallest shared memory
// that suits a kernel, so a kernel that needs more cannot start on the same SM: with programmatic
// dependent launch it waits for an empty SM. Kernels that should overlap request the same division:
// the largest shared memory.
// Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 9.0
// Read next  launch.cuh
#pragma once

#include <utility>

#include "framework/cuda/launch.cuh"

namespace convscope {

// Launches a kernel that shares SMs with the kernels before and after it.
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
