// SPDX-License-Identifier: Apache-2.0
// number.cuh: converts elements of type f64, f32, f16 and bf16 to the type in which a kernel
// computes, and back: double for f64, float for the others.
#pragma once

#include "framework/cuda/half.cuh"

namespace convscope {

template <class T, class Float>
__device__ inline Float number(T value) {
  if constexpr (sizeof(T) == 2) {
    return to_float(value);
  } else {
    return value;
  }
}
template <class T, class Float>
__device__ inline T stored_as(Float value) {
  if constexpr (sizeof(T) == 2) {
    return from_float<T>(value);
  } else {
    return value;
  }
}

}  // namespace convscope
