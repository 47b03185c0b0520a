// SPDX-License-Identifier: Apache-2.0
// vector4.h: the back end of simd.h with 4 lanes; avx512.h describes the operations. It uses only
// the vector extensions of GCC and Clang, so it serves every CPU with 128-bit vectors: SSE2, NEON
// or WebAssembly.
//
// The scalar copy of a kernel that needs four lanes uses it, too (lane_pixels.h). So it has a
// namespace of its own.
#pragma once

#include "framework/simd/simd_base.h"

namespace convscope::CONVSCOPE_ISA::four {

inline constexpr int kLanes = 4;
#if defined(__aarch64__)
inline constexpr int kRegisters = 32;
#else
inline constexpr int kRegisters = 16;
#endif
inline constexpr bool kMasksAreFree = false;

using Floats = float __attribute__((vector_size(16)));
using Words = std::int32_t __attribute__((vector_size(16)));

struct Vec {
  Floats v;
};
struct Mask {  // -1 or 0 in each lane
  Words v;
};
CONVSCOPE_INLINE Vec load(const float* p) {
  Vec a;
  __builtin_memcpy(&a.v, p, sizeof(a.v));
  return a;
}
CONVSCOPE_INLINE void store(float* p, Vec a) { __builtin_memcpy(p, &a.v, sizeof(a.v)); }
// Loads a part of a vector without branches: the other lanes read or write a variable.
CONVSCOPE_INLINE Vec load_first(const float* p, int count) {
  const float none = 0.0f;
  return {Floats{*(count > 0 ? p : &none), *(count > 1 ? p + 1 : &none),
                 *(count > 2 ? p + 2 : &none), *(count > 3 ? p + 3 : &none)}};
}
CONVSCOPE_INLINE void store_first(float* p, Vec a, int count) {
  float none;
  for (int i = 0; i < kLanes; ++i) *(i < count ? p + i : &none) = a.v[i];
}
CONVSCOPE_INLINE Vec broadcast(float x) { return {Floats{x, x, x, x}}; }
CONVSCOPE_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
CONVSCOPE_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
CONVSCOPE_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
CONVSCOPE_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
CONVSCOPE_INLINE Vec sqrt(Vec a) {
  return {Floats{__builtin_sqrtf(a.v[0]), __builtin_sqrtf(a.v[1]), __builtin_sqrtf(a.v[2]),
                 __builtin_sqrtf(a.v[3])}};
}
CONVSCOPE_INLINE Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
CONVSCOPE_INLINE Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
// Rounds product and sum separately on a CPU without FMA.
CONVSCOPE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
CONVSCOPE_INLINE Vec opaque(Vec a) {
  CONVSCOPE_OPAQUE(a.v);
  return a;
}
CONVSCOPE_INLINE float sum(Vec a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }

CONVSCOPE_INLINE Mask lanes_between(int begin, int end) {
  const Words lane = {0, 1, 2, 3};
  return {(lane >= begin) & (lane < end)};
}
CONVSCOPE_INLINE Mask first_lanes(int count) { return lanes_between(0, count); }
CONVSCOPE_INLINE Vec load(const float* p, Mask lanes) {
  const float none = 0.0f;
  return {Floats{*(lanes.v[0] != 0 ? p : &none), *(lanes.v[1] != 0 ? p + 1 : &none),
                 *(lanes.v[2] != 0 ? p + 2 : &none), *(lanes.v[3] != 0 ? p + 3 : &none)}};
}
CONVSCOPE_INLINE void store(float* p, Vec a, Mask lanes) {
  float none;
  for (int i = 0; i < kLanes; ++i) *(lanes.v[i] != 0 ? p + i : &none) = a.v[i];
}
CONVSCOPE_INLINE Mask greater(Vec a, Vec b) { return {a.v > b.v}; }
CONVSCOPE_INLINE Mask unordered(Vec a, Vec b) { return {(a.v != a.v) | (b.v != b.v)}; }
CONVSCOPE_INLINE Mask passes_relu(Vec a) { return {~(a.v <= Floats{})}; }
CONVSCOPE_INLINE Mask either(Mask a, Mask b) { return {a.v | b.v}; }
CONVSCOPE_INLINE Mask all_lanes() { return {Words{-1, -1, -1, -1}}; }
CONVSCOPE_INLINE bool any(Mask a) { return (a.v[0] | a.v[1] | a.v[2] | a.v[3]) != 0; }
CONVSCOPE_INLINE Vec choose(Mask mask, Vec a, Vec b) {
  const auto p = __builtin_bit_cast(Words, a.v), q = __builtin_bit_cast(Words, b.v);
  return {__builtin_bit_cast(Floats, (p & ~mask.v) | (q & mask.v))};
}
CONVSCOPE_INLINE Vec keep(Mask mask, Vec a) {
  return {__builtin_bit_cast(Floats, __builtin_bit_cast(Words, a.v) & mask.v)};
}
CONVSCOPE_INLINE Vec largest(Vec a, Vec b) { return max(b, a); }
CONVSCOPE_INLINE Vec keep_where_positive(Vec a, Vec x) { return keep({x.v > Floats{}}, a); }
CONVSCOPE_INLINE Vec bounded_relu(Vec a, Vec most) { return min(most, keep(passes_relu(a), a)); }

CONVSCOPE_INLINE Vec even_lanes(Vec a, Vec b) {
  return {__builtin_shufflevector(a.v, b.v, 0, 2, 4, 6)};
}
CONVSCOPE_INLINE Vec odd_lanes(Vec a, Vec b) {
  return {__builtin_shufflevector(a.v, b.v, 1, 3, 5, 7)};
}
CONVSCOPE_INLINE Vec weave_low(Vec a, Vec b) {
  return {__builtin_shufflevector(a.v, b.v, 0, 4, 1, 5)};
}
CONVSCOPE_INLINE Vec weave_high(Vec a, Vec b) {
  return {__builtin_shufflevector(a.v, b.v, 2, 6, 3, 7)};
}

CONVSCOPE_INLINE void transpose(Vec (&v)[4]) {
  const Vec a = weave_low(v[0], v[2]), b = weave_low(v[1], v[3]);
  const Vec c = weave_high(v[0], v[2]), d = weave_high(v[1], v[3]);
  v[0] = weave_low(a, b);
  v[1] = weave_high(a, b);
  v[2] = weave_low(c, d);
  v[3] = weave_high(c, d);
}

struct Ints {
  Words v;
};
CONVSCOPE_INLINE Ints load_ints(const std::int32_t* p) {
  Ints a;
  __builtin_memcpy(&a.v, p, sizeof(a.v));
  return a;
}
CONVSCOPE_INLINE void store_ints(std::int32_t* p, Ints a) {
  __builtin_memcpy(p, &a.v, sizeof(a.v));
}
CONVSCOPE_INLINE Ints set_ints(std::int32_t a) { return {Words{a, a, a, a}}; }
CONVSCOPE_INLINE Ints larger(Ints a, Ints b) { return {a.v > b.v ? a.v : b.v}; }
CONVSCOPE_INLINE Ints smaller(Ints a, Ints b) { return {a.v < b.v ? a.v : b.v}; }
CONVSCOPE_INLINE Ints operator^(Ints a, Ints b) { return {a.v ^ b.v}; }
CONVSCOPE_INLINE Ints operator+(Ints a, Ints b) { return {a.v + b.v}; }
CONVSCOPE_INLINE Ints operator&(Ints a, Ints b) { return {a.v & b.v}; }
CONVSCOPE_INLINE Ints operator|(Ints a, Ints b) { return {a.v | b.v}; }
CONVSCOPE_INLINE Ints shift_left(Ints a, int bits) { return {a.v << bits}; }
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints b) {
  return {__builtin_shufflevector(a.v, b.v, 0, 2, 4, 6)};
}
CONVSCOPE_INLINE Ints odd_lanes(Ints a, Ints b) {
  return {__builtin_shufflevector(a.v, b.v, 1, 3, 5, 7)};
}

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {__builtin_convertvector(a.v, Floats)}; }
// Rounds by adding and subtracting 2^23 with the sign of the number. From 2^23 on, all numbers are
// integers. NaN and values out of range become the lowest integer.
CONVSCOPE_INLINE Ints round_to_ints(Vec a) {
  const Words sign = __builtin_bit_cast(Words, a.v) & (-2147483647 - 1);
  const Words size = __builtin_bit_cast(Words, a.v) & 0x7fffffff;
  const auto big = __builtin_bit_cast(Floats, sign | 0x4b000000);
  const Vec rounded = choose({size < 0x4b000000}, a, {(a.v + big) - big});
  const Mask fits = {size < 0x4f000000};  // |a| < 2^31; -2^31 is the lowest integer anyway
  const Words whole = __builtin_convertvector(keep(fits, rounded).v, Words);
  return {(whole & fits.v) | (~fits.v & (-2147483647 - 1))};
}

using Codes = std::uint8_t __attribute__((vector_size(16)));
// Returns the first (second) half of a[0] b[0] a[1] b[1] ..., of single bytes or of pairs of bytes.
CONVSCOPE_INLINE Codes weave_bytes_low(Codes a, Codes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
CONVSCOPE_INLINE Codes weave_bytes_high(Codes a, Codes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
CONVSCOPE_INLINE Codes weave_pairs_low(Codes a, Codes b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
}
CONVSCOPE_INLINE Codes weave_pairs_high(Codes a, Codes b) {
  return __builtin_shufflevector(a, b, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30,
                                 31);
}
// Loads four bytes into the first lane.
CONVSCOPE_INLINE Codes load_four_bytes(const std::uint8_t* p) {
  return __builtin_bit_cast(Codes, Words{four_bytes(p), 0, 0, 0});
}
// Returns a byte 0..255 in each lane.
CONVSCOPE_INLINE Ints widened(Codes first_four) {
  const Codes none = {};
  return {__builtin_bit_cast(Words, weave_pairs_low(weave_bytes_low(first_four, none), none))};
}
// Returns the low bytes of four vectors, whose lanes are 0..255.
CONVSCOPE_INLINE Codes low_bytes(Ints a, Ints b, Ints c, Ints d) {
  using Halves = std::int16_t __attribute__((vector_size(16)));
  const auto half = [](Ints x) { return __builtin_bit_cast(Halves, x.v); };
  const Halves ab = __builtin_shufflevector(half(a), half(b), 0, 2, 4, 6, 8, 10, 12, 14);
  const Halves cd = __builtin_shufflevector(half(c), half(d), 0, 2, 4, 6, 8, 10, 12, 14);
  return __builtin_shufflevector(__builtin_bit_cast(Codes, ab), __builtin_bit_cast(Codes, cd), 0, 2,
                                 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

}  // namespace convscope::CONVSCOPE_ISA::four
