// SPDX-License-Identifier: Apache-2.0
// address.cuh: computes the address base + index in one instruction (multiply-add). For a base plus
// two indices, the compiler tends to add the indices first, and then needs three instructions per
// sum. Where many loads share one of the indices, two calls in sequence are cheaper: the address of
// the shared index is computed once.
#pragma once

#include "framework/cuda/launch.cuh"

namespace convscope {

template <class T>
__device__ inline const T* address_at(const T* base, int index) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return base + index;
#else
  const T* out;
  asm("mad.wide.s32 %0, %1, %2, %3;"
      : "=l"(out)
      : "r"(index), "n"(static_cast<int>(sizeof(T))), "l"(base));
  return out;
#endif
}

}  // namespace convscope
