// SPDX-License-Identifier: Apache-2.0
// async_copy.cuh: copies from global to shared memory that pass no register (cp.async, sm_80).
//
//   async_copy<16>(&tile[i], &x[j], inside);   // 4, 8 or 16 bytes; zeros when not `inside`
//   async_copy_commit();                       // all copies since the last commit are one group
//   async_copy_wait<1>();                      // until at most 1 group of this thread is under way
//   __syncthreads();                           // and what the other threads copied
// In the emulation a copy is done at once.
#pragma once

#include <cstring>

#include "framework/cuda/runtime.cuh"

namespace convscope {

// Both addresses are multiples of kBytes. With `inside` false nothing is read, and kBytes of zeros
// are written. 16 bytes go past L1 unless kKeepInL1: what other blocks of this multiprocessor or
// later steps of this block read again.
template <int kBytes, bool kKeepInL1 = true>
__device__ inline void async_copy(void* shared, const void* global, bool inside = true) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if defined(CONVSCOPE_CUDA_EMULATED)
  if (inside) {
    std::memcpy(shared, global, kBytes);
  } else {
    std::memset(shared, 0, kBytes);
  }
#else
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int read = inside ? kBytes : 0;
  if constexpr (kBytes == 16 && !kKeepInL1) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(read)
                 : "memory");
  }
#endif
}

__device__ inline void async_copy_commit() {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int kGroups>
__device__ inline void async_copy_wait() {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

// Between this thread's writes to shared memory (async_copy_wait included) and the barrier behind
// which wgmma or bulk copies read them (sm_90).
__device__ inline void order_shared_writes_for_matrix_unit() {
#if !defined(CONVSCOPE_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace convscope
