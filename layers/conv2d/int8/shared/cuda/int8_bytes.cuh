// SPDX-License-Identifier: Apache-2.0
// int8_bytes.cuh: functions for a 32-bit word of four codes, signed or unsigned.
// Read next  int8_outputs.cuh
#pragma once

#include "framework/cuda/launch.cuh"

namespace convscope::int8 {

__device__ inline int byte_of(unsigned word, int i, bool is_signed) {
  const auto byte = static_cast<unsigned char>(word >> (8 * i));
  return is_signed ? static_cast<signed char>(byte) : byte;
}

// Returns sum plus the four products of the bytes of two words.
template <bool kSigned>
__device__ inline int dot_bytes(unsigned x, unsigned w, int sum) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  for (int i = 0; i < 4; ++i) sum += byte_of(x, i, kSigned) * byte_of(w, i, true);
#else
  if constexpr (kSigned) {
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(w));
  } else {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(w));
  }
#endif
  return sum;
}

}  // namespace convscope::int8
