// SPDX-License-Identifier: Apache-2.0
// carveout.cuh: how a multiprocessor divides its memory between L1 and shared memory.
//
// A multiprocessor holds one division while blocks run on it. The driver chooses the smallest
// shared memory that suits a kernel, so a kernel that needs more cannot begin beside it: with
// programmatic dependent launch it then waits for a multiprocessor that is empty. Kernels that are
// to overlap ask for the same division: all that can be shared memory.
// Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 9.0
// Read next  launch.cuh
#pragma once

#include <utility>

#include "framework/cuda/launch.cuh"

namespace convscope {

// launch() for a kernel that shares multiprocessors with its neighbours.
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
