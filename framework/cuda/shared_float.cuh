// SPDX-License-Identifier: Apache-2.0
// shared_float.cuh: loads and stores floats in shared memory at a 32-bit address, which a kernel
// can keep and increment. With a pointer, when registers are scarce, the compiler tends to
// recompute the base of shared memory on each access, which takes three instructions.
#pragma once

#include "framework/cuda/launch.cuh"

namespace convscope {

#if defined(CONVSCOPE_CUDA_EMULATED)
using SharedAddress = std::intptr_t;
#else
using SharedAddress = int;  // bytes
#endif

__device__ inline SharedAddress shared_address(const float* at) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return reinterpret_cast<SharedAddress>(at);
#else
  return static_cast<SharedAddress>(__cvta_generic_to_shared(at));
#endif
}
__device__ inline float load_shared(SharedAddress at) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return *reinterpret_cast<const float*>(at);
#else
  float out;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(out) : "r"(at) : "memory");
  return out;
#endif
}
__device__ inline void store_shared(SharedAddress at, float value) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  *reinterpret_cast<float*>(at) = value;
#else
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
#endif
}

}  // namespace convscope
