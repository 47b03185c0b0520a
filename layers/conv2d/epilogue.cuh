// SPDX-License-Identifier: Apache-2.0
// epilogue.cuh: computes y = relu(sum + residual) on a GPU; residual and ReLU are optional. Kernels
// that fuse the epilogue and the separate pass (epilogue_cuda.cu) share these functions, so that
// their bits are equal.
// Read next  epilogue_cuda.cu; epilogue_simd.cpp, the same on the CPU
#pragma once

#include <cstdint>

#include "framework/cuda/half.cuh"

namespace convscope {

// Keeps NaN, and turns -0 into 0.
template <class T>
__device__ inline T finished(T sum, bool relu) {
  return relu && sum <= T{0} ? T{0} : sum;
}

// Adds element `at` of the residual, if residual is not null, to this sum.
template <class T>
__device__ inline float finished(float sum, const T* residual, std::int64_t at, bool relu) {
  if (residual != nullptr) sum += to_float(residual[at]);
  return finished(sum, relu);
}

}  // namespace convscope
