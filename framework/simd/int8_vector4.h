// SPDX-License-Identifier: Apache-2.0
// int8_vector4.h: the back end of int8_vector.h with 4 lanes; int8_avx512.h describes the
// operations. Vector extensions have no multiplication that adds pairs. So the products of 8 and 8
// bits, which fit into 16 bits, are computed first and then extended to 32 bits.
#pragma once

#include "framework/simd/vector4.h"

namespace convscope::CONVSCOPE_ISA::four {

using Halves = std::int16_t __attribute__((vector_size(16)));

struct Bytes {
  Codes v;
};
CONVSCOPE_INLINE void store_three_bytes(std::uint8_t* p, Ints a) {
  for (int i = 0; i < kLanes; ++i) {
    const int lane = a.v[i];
    __builtin_memcpy(p + 3 * i, &lane, i < kLanes - 1 ? 4 : 3);
  }
}
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) {
  return to_floats(widened(load_four_bytes(p)));
}
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) {
  const Codes none = {};
  const Codes high = weave_pairs_low(
      none, weave_bytes_low(none, load_four_bytes(reinterpret_cast<const std::uint8_t*>(p))));
  return to_floats({__builtin_bit_cast(Words, high) >> 24});
}
CONVSCOPE_INLINE Bytes high_halves(const Ints (&a)[4]) {
  const auto clamped = [](Ints x) {
    return smaller(set_ints(255), larger(set_ints(0), {x.v >> 16}));
  };
  return {low_bytes(clamped(a[0]), clamped(a[1]), clamped(a[2]), clamped(a[3]))};
}
CONVSCOPE_INLINE Bytes less_down_to_zero(Bytes a, Bytes b) {
  return {(a.v > b.v ? a.v : b.v) - b.v};
}
CONVSCOPE_INLINE Bytes operator+(Bytes a, Bytes b) { return {a.v + b.v}; }
CONVSCOPE_INLINE Bytes set_bytes(int a) { return {Codes{} + static_cast<std::uint8_t>(a)}; }
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  std::uint32_t parts[4];
  __builtin_memcpy(parts, &a.v, sizeof(parts));
  for (int i = 0; i < count; ++i) __builtin_memcpy(p + i * step, &parts[i], 4);
}
CONVSCOPE_INLINE Ints least_low_halves(Ints least, Ints a) {
  return smaller({least.v & 0xffff}, {a.v & 0xffff});
}
CONVSCOPE_INLINE unsigned lanes_up_to(Ints a, int bound) {
  const Words bits = ((a.v & 0xffff) <= bound) & Words{1, 2, 4, 8};
  return static_cast<unsigned>(bits[0] | bits[1] | bits[2] | bits[3]);
}
CONVSCOPE_INLINE bool any_beyond(Vec a, Vec bound) {
  const Words size = __builtin_bit_cast(Words, a.v) & 0x7fffffff;
  return any({~(__builtin_bit_cast(Floats, size) <= bound.v)});
}

struct Quad {  // in 16 bits: x0 x2, and x1 x3
  Halves even, odd;
};
using WeightQuad = Quad;
CONVSCOPE_INLINE Quad spread(Words bytes) {
  const auto pairs = __builtin_bit_cast(std::uint16_t __attribute__((vector_size(16))), bytes);
  return {__builtin_bit_cast(Halves, pairs & 255), __builtin_bit_cast(Halves, pairs >> 8)};
}
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return spread(set_ints(four_bytes(p)).v);
}
CONVSCOPE_INLINE Quad load_quads(const std::uint8_t* p) {
  Words bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return spread(bytes);
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) {
  WeightQuad w;
  __builtin_memcpy(&w.even, p, 16);
  __builtin_memcpy(&w.odd, p + 16, 16);
  return w;
}
CONVSCOPE_INLINE WeightQuad broadcast_weights(const std::int8_t* p) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(p);
  return {__builtin_bit_cast(Halves, set_ints(four_bytes(bytes)).v),
          __builtin_bit_cast(Halves, set_ints(four_bytes(bytes + 4)).v)};
}
CONVSCOPE_INLINE Quad quads_of_pixels(const std::uint8_t* p) {
  const Codes first = weave_bytes_low(load_four_bytes(p), load_four_bytes(p + 16));
  const Codes second = weave_bytes_low(load_four_bytes(p + 32), load_four_bytes(p + 48));
  return spread(__builtin_bit_cast(Words, weave_pairs_low(first, second)));
}
CONVSCOPE_INLINE WeightQuad opaque(WeightQuad w) {
  CONVSCOPE_OPAQUE(w.even);
  CONVSCOPE_OPAQUE(w.odd);
  return w;
}
CONVSCOPE_INLINE Words sums_of_pairs(Halves products) {
  const auto pairs = __builtin_bit_cast(Words, products);
  return ((pairs << 16) >> 16) + (pairs >> 16);
}
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  return {sums.v + sums_of_pairs(x.even * w.even) + sums_of_pairs(x.odd * w.odd)};
}

}  // namespace convscope::CONVSCOPE_ISA::four
