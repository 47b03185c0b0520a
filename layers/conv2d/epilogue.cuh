// SPDX-License-Identifier: Apache-2.0
// epilogue.cuh: y = relu(sum + residual) on a GPU, each part optional: one definition for kernels
// that fuse it and for the separate pass (epilogue_cuda.cu), so that their bits are equal.
// Read next  epilogue_cuda.cu; epilogue_simd.cpp, the same on the CPU
#pragma once

#include <cstdint>

#include "framework/cuda/half.cuh"

namespace convscope {

// NaN stays, and -0 becomes 0.
template <class T>
__device__ inline T finished(T sum, bool relu) {
  return relu && sum <= T{0} ? T{0} : sum;
}

// residual may be null; its element `at` is added to this sum.
template <class T>
__device__ inline float finished(float sum, const T* residual, std::int64_t at, bool relu) {
  if (residual != nullptr) sum += to_float(residual[at]);
  return finished(sum, relu);
}

}  // namespace convscope
