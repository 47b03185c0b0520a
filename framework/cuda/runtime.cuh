// SPDX-License-Identifier: Apache-2.0
// runtime.cuh: includes the CUDA runtime, or its emulation on the CPU (framework/cuda/emulation/).
// Every .cu file includes runtime.cuh instead of <cuda_runtime.h>, so that tests can run all
// kernels on a machine without a GPU.
#pragma once

#if defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/emulation/runtime.h"
#else
#include <cuda_runtime.h>
#endif
