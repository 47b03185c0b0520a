// SPDX-License-Identifier: Apache-2.0
// int8_scalar.h: the back end of int8_vector.h with one lane; int8_avx512.h describes the
// operations.
#pragma once

#include "framework/simd/simd.h"

#if defined(CONVSCOPE_ISA_IS_SCALAR)

namespace convscope::CONVSCOPE_ISA {

struct Bytes {
  std::uint8_t v[4];
};
CONVSCOPE_INLINE void store_three_bytes(std::uint8_t* p, Ints a) { __builtin_memcpy(p, &a.v, 3); }
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) { return {static_cast<float>(*p)}; }
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) { return {static_cast<float>(*p)}; }
CONVSCOPE_INLINE Bytes high_halves(const Ints (&a)[4]) {
  Bytes out;
  for (int i = 0; i < 4; ++i) {
    const int high = a[i].v >> 16;
    out.v[i] = static_cast<std::uint8_t>(high < 0 ? 0 : high > 255 ? 255 : high);
  }
  return out;
}
CONVSCOPE_INLINE Bytes less_down_to_zero(Bytes a, Bytes b) {
  for (int i = 0; i < 4; ++i)
    a.v[i] = static_cast<std::uint8_t>(a.v[i] > b.v[i] ? a.v[i] - b.v[i] : 0);
  return a;
}
CONVSCOPE_INLINE Bytes operator+(Bytes a, Bytes b) {
  for (int i = 0; i < 4; ++i) a.v[i] = static_cast<std::uint8_t>(a.v[i] + b.v[i]);
  return a;
}
CONVSCOPE_INLINE Bytes set_bytes(int a) {
  const auto v = static_cast<std::uint8_t>(a);
  return {{v, v, v, v}};
}
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  for (int i = 0; i < count; ++i) p[i * step] = a.v[i];
}
CONVSCOPE_INLINE Ints least_low_halves(Ints least, Ints a) {
  const std::int32_t had = least.v & 0xffff, has = a.v & 0xffff;
  return {had < has ? had : has};
}
CONVSCOPE_INLINE unsigned lanes_up_to(Ints a, int bound) { return (a.v & 0xffff) <= bound ? 1 : 0; }
CONVSCOPE_INLINE bool any_beyond(Vec a, Vec bound) { return !(__builtin_fabsf(a.v) <= bound.v); }

struct Quad {
  std::uint8_t v[4];
};
struct WeightQuad {
  const std::int8_t* p;
};
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
CONVSCOPE_INLINE Quad quads_of_pixels(const std::uint8_t* p) {
  return {{p[0], p[16], p[32], p[48]}};
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) { return {p}; }
CONVSCOPE_INLINE Quad load_quads(const std::uint8_t* p) { return broadcast_quad(p); }
CONVSCOPE_INLINE WeightQuad broadcast_weights(const std::int8_t* p) { return {p}; }
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  for (int i = 0; i < 4; ++i) sums.v += x.v[i] * w.p[i];
  return sums;
}

}  // namespace convscope::CONVSCOPE_ISA

#endif
