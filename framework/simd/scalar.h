// SPDX-License-Identifier: Apache-2.0
// scalar.h: the back end of simd.h with one lane, plain C++; avx512.h describes the operations.
#pragma once

#include "framework/simd/simd_base.h"

#if defined(CONVSCOPE_ISA_IS_SCALAR)

namespace convscope::CONVSCOPE_ISA {

inline constexpr int kLanes = 1;
inline constexpr int kRegisters = 16;
inline constexpr bool kMasksAreFree = false;
struct Vec {
  float v;
};
using Mask = bool;
CONVSCOPE_INLINE Vec load(const float* p) { return {*p}; }
CONVSCOPE_INLINE void store(float* p, Vec a) { *p = a.v; }
CONVSCOPE_INLINE Vec load_first(const float* p, int count) { return {count > 0 ? *p : 0.0f}; }
CONVSCOPE_INLINE void store_first(float* p, Vec a, int count) {
  if (count > 0) *p = a.v;
}
CONVSCOPE_INLINE Vec broadcast(float x) { return {x}; }
CONVSCOPE_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
CONVSCOPE_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
CONVSCOPE_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
CONVSCOPE_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
CONVSCOPE_INLINE Vec sqrt(Vec a) { return {__builtin_sqrtf(a.v)}; }
CONVSCOPE_INLINE Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
CONVSCOPE_INLINE Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
// Rounds product and sum separately: the scalar version has no FMA instruction.
CONVSCOPE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
CONVSCOPE_INLINE Vec keep_where_positive(Vec a, Vec x) { return {x.v > 0.0f ? a.v : 0.0f}; }
CONVSCOPE_INLINE Vec bounded_relu(Vec a, Vec most) {
  const float positive = a.v <= 0.0f ? 0.0f : a.v;
  return {most.v < positive ? most.v : positive};
}
CONVSCOPE_INLINE Vec opaque(Vec a) {
  CONVSCOPE_OPAQUE(a.v);
  return a;
}
CONVSCOPE_INLINE float sum(Vec a) { return a.v; }

CONVSCOPE_INLINE Mask first_lanes(int count) { return count > 0; }
CONVSCOPE_INLINE Mask lanes_between(int begin, int end) { return begin < end; }
CONVSCOPE_INLINE Vec load(const float* p, Mask lanes) { return {lanes ? *p : 0.0f}; }
CONVSCOPE_INLINE void store(float* p, Vec a, Mask lanes) {
  if (lanes) *p = a.v;
}
// Avoids branches, because the larger of two pixels cannot be predicted.
CONVSCOPE_INLINE Mask greater(Vec a, Vec b) { return a.v > b.v; }
CONVSCOPE_INLINE Mask unordered(Vec a, Vec b) { return (a.v != a.v) | (b.v != b.v); }
CONVSCOPE_INLINE Mask passes_relu(Vec a) { return !(a.v <= 0.0f); }
CONVSCOPE_INLINE Mask either(Mask a, Mask b) { return a | b; }
CONVSCOPE_INLINE Mask all_lanes() { return true; }
CONVSCOPE_INLINE bool any(Mask a) { return a; }
CONVSCOPE_INLINE Vec choose(Mask mask, Vec a, Vec b) { return {choose_if(mask, b.v, a.v)}; }
CONVSCOPE_INLINE Vec keep(Mask mask, Vec a) { return {choose_if(mask, a.v, 0.0f)}; }
CONVSCOPE_INLINE Vec largest(Vec a, Vec b) { return {b.v > a.v ? b.v : a.v}; }

CONVSCOPE_INLINE Vec even_lanes(Vec a, Vec) { return a; }
CONVSCOPE_INLINE Vec odd_lanes(Vec, Vec b) { return b; }
CONVSCOPE_INLINE Vec weave_low(Vec a, Vec) { return a; }
CONVSCOPE_INLINE Vec weave_high(Vec, Vec b) { return b; }

struct Ints {
  std::int32_t v;
};
CONVSCOPE_INLINE Ints load_ints(const std::int32_t* p) { return {*p}; }
CONVSCOPE_INLINE void store_ints(std::int32_t* p, Ints a) { *p = a.v; }
CONVSCOPE_INLINE Ints set_ints(std::int32_t a) { return {a}; }
CONVSCOPE_INLINE Ints larger(Ints a, Ints b) { return {a.v > b.v ? a.v : b.v}; }
CONVSCOPE_INLINE Ints smaller(Ints a, Ints b) { return {a.v < b.v ? a.v : b.v}; }
CONVSCOPE_INLINE Ints operator^(Ints a, Ints b) { return {a.v ^ b.v}; }
CONVSCOPE_INLINE Ints operator+(Ints a, Ints b) { return {a.v + b.v}; }
CONVSCOPE_INLINE Ints operator&(Ints a, Ints b) { return {a.v & b.v}; }
CONVSCOPE_INLINE Ints operator|(Ints a, Ints b) { return {a.v | b.v}; }
CONVSCOPE_INLINE Ints shift_left(Ints a, int bits) { return {a.v << bits}; }
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints) { return a; }
CONVSCOPE_INLINE Ints odd_lanes(Ints, Ints b) { return b; }

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {static_cast<float>(a.v)}; }
// Converts to integers, rounding half to even. NaN and values out of range become the lowest
// integer.
CONVSCOPE_INLINE Ints round_to_ints(Vec a) {
  if (!(a.v >= -2147483648.0f && a.v < 2147483648.0f)) return {-2147483647 - 1};
  return {static_cast<std::int32_t>(__builtin_rintf(a.v))};
}

}  // namespace convscope::CONVSCOPE_ISA

#endif
