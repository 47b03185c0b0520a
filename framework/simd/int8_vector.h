// SPDX-License-Identifier: Apache-2.0
// int8_vector.h: vectors for products of u8 activations and i8 weights ("bytes" in this file).
// Include it in *_int8_simd.cpp files only, which are compiled without and with VNNI (cpu_isa.h).
//
//   Ints         kLanes accumulators, i32
//   Quad         four adjacent bytes x0 x1 x2 x3 of activations, 0..255, in every lane
//   WeightQuad   four bytes of weights, -128..127, different in each lane
//   dot(sums, x, w)   sums[l] + x0 w0[l] + x1 w1[l] + x2 w2[l] + x3 w3[l], exact
// Activations and weights may exchange their roles: load_quads() loads different activations into
// each lane, and broadcast_weights() loads the same weights into all lanes.
//
// VNNI computes dot() with one instruction. Without VNNI, the instruction `vpmaddubsw` is
// unsuitable, because it saturates: two products of 255 * 127 exceed 16 bits. So the bytes are
// extended to 16 bits, even and odd bytes separately, and multiplied by `vpmaddwd`, which adds two
// products exactly. Weights are stored in this extended format (kSpread); activations are extended
// once for all lanes.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns that _mm512_undefined_epi32() in its own header is uninitialised.
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <cstdint>

#include "framework/simd/cpu_isa.h"
#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {

inline constexpr bool kVnni = CONVSCOPE_ISA_VNNI;

#if defined(CONVSCOPE_ISA_IS_AVX512) || defined(CONVSCOPE_ISA_IS_AVX2)

// The weights of a lane for four inputs. With VNNI, they are stored as i8 w0 w1 w2 w3. Without
// VNNI, they are stored in 16 bits: first w0 w2 of all lanes, then w1 w3 of all lanes.
inline constexpr bool kSpread = !kVnni;

CONVSCOPE_INLINE std::int32_t four_bytes(const std::uint8_t* p) {
  std::int32_t out;
  __builtin_memcpy(&out, p, sizeof(out));
  return out;
}

#endif

#if defined(CONVSCOPE_ISA_IS_AVX512)

struct Ints {
  __m512i v;
};
struct Bytes {  // of four vectors of Ints
  __m512i v;
};
CONVSCOPE_INLINE Ints load_ints(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
CONVSCOPE_INLINE void store_ints(std::int32_t* p, Ints a) { _mm512_storeu_si512(p, a.v); }
CONVSCOPE_INLINE Ints set_ints(std::int32_t a) { return {_mm512_set1_epi32(a)}; }
CONVSCOPE_INLINE Ints larger(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints smaller(Ints a, Ints b) { return {_mm512_min_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator^(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator&(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator|(Ints a, Ints b) { return {_mm512_or_si512(a.v, b.v)}; }
CONVSCOPE_INLINE Ints shift_left(Ints a, int bits) {
  return {_mm512_slli_epi32(a.v, static_cast<unsigned>(bits))};
}
// Stores the three low bytes of each lane without gaps.
CONVSCOPE_INLINE void store_three_bytes(std::uint8_t* p, Ints a) {
  const __m512i three =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const __m512i from = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(from, _mm512_shuffle_epi8(a.v, three));
  _mm512_mask_storeu_epi32(p, 0x0fff, bytes);
}
// Returns the even (or odd) lanes of a, followed by those of b.
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints b) {
  const __m512i from = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return {_mm512_permutex2var_epi32(a.v, from, b.v)};
}
CONVSCOPE_INLINE Ints odd_lanes(Ints a, Ints b) {
  const __m512i from = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_epi32(a.v, from, b.v)};
}

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
// Converts to integers, rounding half to even. Values out of range become the lowest integer.
CONVSCOPE_INLINE Ints round_to_ints(Vec a) { return {_mm512_cvtps_epi32(a.v)}; }
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Returns the high halves of four vectors as bytes, clamped to 0..255.
CONVSCOPE_INLINE Bytes high_halves(const Ints (&a)[4]) {
  // Interleaves the 16-bit words of two vectors, a0 b0 a1 b1 ..., as x | (y & high).
  const __m512i high = _mm512_set1_epi32(-65536);
  const __m512i words01 =
      _mm512_ternarylogic_epi32(_mm512_srli_epi32(a[0].v, 16), a[1].v, high, 0xf8);
  const __m512i words23 =
      _mm512_ternarylogic_epi32(_mm512_srli_epi32(a[2].v, 16), a[3].v, high, 0xf8);
  // In each group of 4 lanes, the bytes a0 b0 a1 b1 a2 b2 a3 b3 c0 d0 ... d3 become a0 a1 a2 a3 b0
  // ... d3. Then the matrix [group, vector] is transposed.
  const __m512i part =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i parts = _mm512_shuffle_epi8(_mm512_packus_epi16(words01, words23), part);
  return {_mm512_permutexvar_epi32(turn, parts)};
}
CONVSCOPE_INLINE Bytes less_down_to_zero(Bytes a, Bytes b) {  // max(a - b, 0), 0..255
  return {_mm512_subs_epu8(a.v, b.v)};
}
CONVSCOPE_INLINE Bytes operator+(Bytes a, Bytes b) { return {_mm512_add_epi8(a.v, b.v)}; }
CONVSCOPE_INLINE Bytes set_bytes(int a) { return {_mm512_set1_epi8(static_cast<char>(a))}; }
// Stores the bytes of the first `count` of four vectors; the vectors are stored `step` bytes apart.
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  if (__builtin_expect(step == kLanes, 1)) {
    if (count == 4) return _mm512_storeu_si512(p, a.v);
    if (count == 2) {
      return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(a.v));
    }
    return _mm512_mask_storeu_epi8(p, (std::uint64_t{1} << (16 * count)) - 1, a.v);
  }
  __m128i parts[4];
  _mm512_storeu_si512(parts, a.v);
  for (int i = 0; i < count; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + i * step), parts[i]);
}
// Returns, in the low 16 bits of each lane, the unsigned minimum of the low 16 bits of `least` and
// `a`. A search for a minimum begins with least = set_ints(-1).
CONVSCOPE_INLINE Ints least_low_halves(Ints least, Ints a) {
  return {_mm512_mask_min_epu16(least.v, 0x55555555, least.v, a.v)};
}
// Returns one bit per lane. The bit is set if the low half of the lane is at most `bound`.
CONVSCOPE_INLINE unsigned lanes_up_to(Ints a, int bound) {
  const __m512i low = _mm512_and_si512(a.v, _mm512_set1_epi32(0xffff));
  return _mm512_cmple_epi32_mask(low, _mm512_set1_epi32(bound));
}
CONVSCOPE_INLINE bool any_beyond(Vec a, Vec bound) {  // |a| > bound in some lane, or NaN
  return _mm512_cmp_ps_mask(_mm512_abs_ps(a.v), bound.v, _CMP_NLE_UQ) != 0;
}

#if CONVSCOPE_ISA_VNNI
struct Quad {
  __m512i v;
};
struct WeightQuad {
  __m512i v;
};
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return {_mm512_set1_epi32(four_bytes(p))};
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) { return {_mm512_loadu_si512(p)}; }
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  return {_mm512_dpbusd_epi32(sums.v, x.v, w.v)};
}
#else
struct Quad {
  __m512i even, odd;
};
using WeightQuad = Quad;
CONVSCOPE_INLINE Quad spread(__m512i bytes) {
  return {_mm512_and_si512(bytes, _mm512_set1_epi16(255)), _mm512_srli_epi16(bytes, 8)};
}
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return spread(_mm512_set1_epi32(four_bytes(p)));
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) {
  return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64)};
}
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  const __m512i pairs = _mm512_add_epi32(_mm512_madd_epi16(x.even, w.even), sums.v);
  return {_mm512_add_epi32(_mm512_madd_epi16(x.odd, w.odd), pairs)};
}
#endif
CONVSCOPE_INLINE Quad load_quads(const std::uint8_t* p) {
#if CONVSCOPE_ISA_VNNI
  return {_mm512_loadu_si512(p)};
#else
  return spread(_mm512_loadu_si512(p));
#endif
}
CONVSCOPE_INLINE WeightQuad broadcast_weights(const std::int8_t* p) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(p);
#if CONVSCOPE_ISA_VNNI
  return {_mm512_set1_epi32(four_bytes(bytes))};
#else
  return {_mm512_set1_epi32(four_bytes(bytes)), _mm512_set1_epi32(four_bytes(bytes + 4))};
#endif
}
// Loads the bytes of channel c of four pixels into each lane c. Pixels are 16 bytes apart.
CONVSCOPE_INLINE Quad quads_of_pixels(const std::uint8_t* p) {
  const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i four_channels = _mm512_permutexvar_epi32(turn, _mm512_loadu_si512(p));
  const __m512i weave =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i quads = _mm512_shuffle_epi8(four_channels, weave);
#if CONVSCOPE_ISA_VNNI
  return {quads};
#else
  return spread(quads);
#endif
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

struct Ints {
  __m256i v;
};
struct Bytes {
  __m256i v;
};
CONVSCOPE_INLINE Ints load_ints(const std::int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
CONVSCOPE_INLINE void store_ints(std::int32_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}
CONVSCOPE_INLINE Ints set_ints(std::int32_t a) { return {_mm256_set1_epi32(a)}; }
CONVSCOPE_INLINE Ints larger(Ints a, Ints b) { return {_mm256_max_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints smaller(Ints a, Ints b) { return {_mm256_min_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator^(Ints a, Ints b) { return {_mm256_xor_si256(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator&(Ints a, Ints b) { return {_mm256_and_si256(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator|(Ints a, Ints b) { return {_mm256_or_si256(a.v, b.v)}; }
CONVSCOPE_INLINE Ints shift_left(Ints a, int bits) { return {_mm256_slli_epi32(a.v, bits)}; }
CONVSCOPE_INLINE void store_three_bytes(std::uint8_t* p, Ints a) {
  const __m256i three = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const __m256i from = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(a.v, three), from);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bytes));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p + 16), _mm256_extracti128_si256(bytes, 1));
}
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints b) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a.v), _mm256_castsi256_ps(b.v), 0x88);
  return {_mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8)};
}
CONVSCOPE_INLINE Ints odd_lanes(Ints a, Ints b) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a.v), _mm256_castsi256_ps(b.v), 0xdd);
  return {_mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8)};
}

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.v)}; }
CONVSCOPE_INLINE Ints round_to_ints(Vec a) { return {_mm256_cvtps_epi32(a.v)}; }
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) {
  return {_mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) {
  return {_mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
CONVSCOPE_INLINE Bytes high_halves(const Ints (&a)[4]) {
  const __m256i words01 = _mm256_blend_epi16(_mm256_srli_epi32(a[0].v, 16), a[1].v, 0xaa);
  const __m256i words23 = _mm256_blend_epi16(_mm256_srli_epi32(a[2].v, 16), a[3].v, 0xaa);
  const __m256i part = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  const __m256i turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i parts = _mm256_shuffle_epi8(_mm256_packus_epi16(words01, words23), part);
  return {_mm256_permutevar8x32_epi32(parts, turn)};
}
CONVSCOPE_INLINE Bytes less_down_to_zero(Bytes a, Bytes b) { return {_mm256_subs_epu8(a.v, b.v)}; }
CONVSCOPE_INLINE Bytes operator+(Bytes a, Bytes b) { return {_mm256_add_epi8(a.v, b.v)}; }
CONVSCOPE_INLINE Bytes set_bytes(int a) { return {_mm256_set1_epi8(static_cast<char>(a))}; }
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  std::uint64_t parts[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts), a.v);
  for (int i = 0; i < count; ++i) __builtin_memcpy(p + i * step, &parts[i], 8);
}
CONVSCOPE_INLINE Ints least_low_halves(Ints least, Ints a) {
  const __m256i low = _mm256_or_si256(a.v, _mm256_set1_epi32(-65536));
  return {_mm256_min_epu16(least.v, low)};
}
CONVSCOPE_INLINE unsigned lanes_up_to(Ints a, int bound) {
  const __m256i low = _mm256_and_si256(a.v, _mm256_set1_epi32(0xffff));
  const __m256i beyond = _mm256_cmpgt_epi32(low, _mm256_set1_epi32(bound));
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(beyond))) ^ 0xff;
}
CONVSCOPE_INLINE bool any_beyond(Vec a, Vec bound) {
  const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v);
  return _mm256_movemask_ps(_mm256_cmp_ps(size, bound.v, _CMP_NLE_UQ)) != 0;
}

#if CONVSCOPE_ISA_VNNI
struct Quad {
  __m256i v;
};
struct WeightQuad {
  __m256i v;
};
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return {_mm256_set1_epi32(four_bytes(p))};
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  return {_mm256_dpbusd_avx_epi32(sums.v, x.v, w.v)};
}
#else
struct Quad {
  __m256i even, odd;
};
using WeightQuad = Quad;
CONVSCOPE_INLINE Quad spread(__m256i bytes) {
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srli_epi16(bytes, 8)};
}
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return spread(_mm256_set1_epi32(four_bytes(p)));
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  const __m256i pairs = _mm256_add_epi32(_mm256_madd_epi16(x.even, w.even), sums.v);
  return {_mm256_add_epi32(_mm256_madd_epi16(x.odd, w.odd), pairs)};
}
#endif
CONVSCOPE_INLINE Quad load_quads(const std::uint8_t* p) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
#if CONVSCOPE_ISA_VNNI
  return {bytes};
#else
  return spread(bytes);
#endif
}
CONVSCOPE_INLINE WeightQuad broadcast_weights(const std::int8_t* p) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(p);
#if CONVSCOPE_ISA_VNNI
  return {_mm256_set1_epi32(four_bytes(bytes))};
#else
  return {_mm256_set1_epi32(four_bytes(bytes)), _mm256_set1_epi32(four_bytes(bytes + 4))};
#endif
}
CONVSCOPE_INLINE Quad quads_of_pixels(const std::uint8_t* p) {
  const auto pixel = [&](int j) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 16 * j));
  };
  const __m128i first = _mm_unpacklo_epi8(pixel(0), pixel(1));
  const __m128i second = _mm_unpacklo_epi8(pixel(2), pixel(3));
  const __m256i quads =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(first, second)),
                              _mm_unpackhi_epi16(first, second), 1);
#if CONVSCOPE_ISA_VNNI
  return {quads};
#else
  return spread(quads);
#endif
}

#else  // scalar: one lane, plain C++

inline constexpr bool kSpread = false;

struct Ints {
  std::int32_t v;
};
struct Bytes {
  std::uint8_t v[4];
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
CONVSCOPE_INLINE void store_three_bytes(std::uint8_t* p, Ints a) { __builtin_memcpy(p, &a.v, 3); }
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints) { return a; }
CONVSCOPE_INLINE Ints odd_lanes(Ints, Ints b) { return b; }

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {static_cast<float>(a.v)}; }
// Converts to integers, rounding half to even. NaN and values out of range become the lowest
// integer.
CONVSCOPE_INLINE Ints round_to_ints(Vec a) {
  if (!(a.v >= -2147483648.0f && a.v < 2147483648.0f)) return {-2147483647 - 1};
  return {static_cast<std::int32_t>(__builtin_rintf(a.v))};
}
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

#endif

inline constexpr int kWeightBytes = kSpread ? 8 : 4;  // of four inputs and one lane

// Interleaves four rows of 16 bytes each: to[4 j + i] = rows[i][j].
CONVSCOPE_INLINE void weave_rows(const std::uint8_t* const (&rows)[4], std::uint8_t* to) {
#if defined(CONVSCOPE_ISA_IS_AVX512) || defined(CONVSCOPE_ISA_IS_AVX2)
  const auto row = [&](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i]));
  };
  const __m128i a = row(0), b = row(1), c = row(2), d = row(3);
  const __m128i ab = _mm_unpacklo_epi8(a, b), ab_end = _mm_unpackhi_epi8(a, b);
  const __m128i cd = _mm_unpacklo_epi8(c, d), cd_end = _mm_unpackhi_epi8(c, d);
  auto* const out = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(out, _mm_unpacklo_epi16(ab, cd));
  _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(ab, cd));
  _mm_storeu_si128(out + 2, _mm_unpacklo_epi16(ab_end, cd_end));
  _mm_storeu_si128(out + 3, _mm_unpackhi_epi16(ab_end, cd_end));
#else
  for (int j = 0; j < 16; ++j) {
    for (int i = 0; i < 4; ++i) to[4 * j + i] = rows[i][j];
  }
#endif
}

}  // namespace convscope::CONVSCOPE_ISA
