// SPDX-License-Identifier: Apache-2.0
// simd.h: one float vector type per instruction set; include it in *_simd.cpp files only.
//
// The same source is compiled with 16 lanes (AVX-512), 8 lanes (AVX2 + FMA), 4 lanes (vector
// extensions of the compiler, for any CPU with 128-bit vectors) and 1 lane (scalar). Everything is
// forced inline and is in the namespace of its instruction set, so the linker can never use AVX-512
// code on a path that an older CPU executes. For the same reason, a *_simd.cpp file uses no std
// templates and no Eigen. Only this folder contains intrinsics (tests/repo/check_layering.py).
//
//   Vec          kLanes floats           load store load_first store_first broadcast zero
//                                        + - * / sqrt max min fma bounded_relu sum held copy_eight
//   Mask         one truth per lane      greater unordered either any choose keep
//                                        lanes_between; load and store of the lanes of a mask
//   Ints         kLanes 32-bit integers  load_ints store_ints set_ints + & | ^ larger smaller ...
//   pairs        of vectors              even_lanes odd_lanes weave_low weave_high
//   properties   kLanes kRegisters kMasksAreFree; CONVSCOPE_HAS_MASKS if masks have registers
//
// Files:
//   avx512.h avx2.h vector4.h scalar.h  the back ends: all of the above, once per instruction set
//   lane_transpose.h  square matrices of lanes, in registers
//   lane_sums.h       sums over the lanes of several vectors, products summed in double
//   lane_exchange.h   lanes exchanged within groups
//   lane_pixels.h     batch_lanes' vectors of at least four lanes, pixels interleaved
//   window_taps.h     u8 indices of the largest pixel of a pooling window
//   row_vector.h      vectors of adjacent pixels of an image row (depthwise)
//   row_folds.h       sums over rows of 16 columns
//   int8_vector.h     products of u8 and i8; its back ends are int8_avx512.h, int8_avx2.h, ...
//   simd_math.h       exp and tanh;  sum_chain.h  lengths of sums;  cpu_isa.h  choice at run time
#pragma once

#include "framework/simd/simd_base.h"

#if defined(CONVSCOPE_ISA_IS_AVX512)
#include "framework/simd/avx512.h"
#elif defined(CONVSCOPE_ISA_IS_AVX2)
#include "framework/simd/avx2.h"
#elif defined(CONVSCOPE_ISA_IS_VECTOR4)
#include "framework/simd/vector4.h"
#else
#include "framework/simd/scalar.h"
#endif

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_VECTOR4)
using namespace four;
#endif

// Tells whether a kernel may use more than 16 registers for its accumulators.
inline constexpr bool kManyRegisters = kRegisters >= 32;

// Keeps `a` in a register if there are enough of them. Otherwise, the compiler loads `a` for each
// use.
CONVSCOPE_INLINE Vec held(Vec a) { return kManyRegisters ? opaque(a) : a; }
CONVSCOPE_INLINE Vec zero() { return broadcast(0.0f); }
// Copies 8 floats. For AVX2, GCC 12 compiles the memcpy to two copies of 16 bytes.
CONVSCOPE_INLINE void copy_eight(float* to, const float* from) {
  if constexpr (kLanes == 8) {
    store(to, load(from));
  } else {
    __builtin_memcpy(to, from, 32);
  }
}
// Returns a mask of the lanes where b is larger than a, or b is NaN.
CONVSCOPE_INLINE Mask beats(Vec b, Vec a) { return either(greater(b, a), unordered(b, b)); }

}  // namespace convscope::CONVSCOPE_ISA
