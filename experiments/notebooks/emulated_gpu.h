// SPDX-License-Identifier: Apache-2.0
// emulated_gpu.h: CUDA in a cell: the project's emulation of a GPU runs kernels on the CPU. The
// keywords are those of the project's *.cu files (framework/cuda/launch.cuh).
//
//   #include "experiments/notebooks/emulated_gpu.h"
//   __global__ void twice(const float* x, float* y, int count) {
//     const int i = blockIdx.x * blockDim.x + threadIdx.x;
//     if (i < count) y[i] = 2 * x[i];
//   }
//   launch(twice, {.grid = dim3(4), .block = dim3(256)}, x, y, 1000);
//
// notebook.h does not include it, because it defines CUDA's keywords as macros. grid_for() and
// cuda_stream() of launch.cuh need a device, and do not exist here.
#pragma once

#ifndef CONVSCOPE_CUDA_EMULATED
#define CONVSCOPE_CUDA_EMULATED 1
#endif
#include "framework/cuda/emulation/thread_order.h"
#include "framework/cuda/launch.cuh"
