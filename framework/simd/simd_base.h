// SPDX-License-Identifier: Apache-2.0
// simd_base.h: what each back end of simd.h begins with.
#pragma once

#if !defined(CONVSCOPE_ISA) || !defined(CONVSCOPE_ISA_ENUM)
#error "simd.h belongs into *_simd.cpp files: CMake compiles them once for each instruction set"
#endif

#include <cstdint>

#define CONVSCOPE_INLINE inline __attribute__((always_inline))

// Hides from the compiler how a float or a vector of four is computed.
#if defined(__x86_64__)
#define CONVSCOPE_OPAQUE(a) asm("" : "+x"(a))
#elif defined(__aarch64__)
#define CONVSCOPE_OPAQUE(a) asm("" : "+w"(a))
#else
#define CONVSCOPE_OPAQUE(a) asm("" : "+m"(a))
#endif

namespace convscope::CONVSCOPE_ISA {

CONVSCOPE_INLINE float float_of_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
CONVSCOPE_INLINE std::uint32_t bits_of_float(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}

// Returns condition ? yes : no without a branch in any compiler, because a branch prevents
// vectorisation.
CONVSCOPE_INLINE float choose_if(bool condition, float yes, float no) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return float_of_bits((bits_of_float(yes) & mask) | (bits_of_float(no) & ~mask));
}

CONVSCOPE_INLINE std::int32_t four_bytes(const std::uint8_t* p) {
  std::int32_t out;
  __builtin_memcpy(&out, p, sizeof(out));
  return out;
}

}  // namespace convscope::CONVSCOPE_ISA
