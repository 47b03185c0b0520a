// SPDX-License-Identifier: Apache-2.0
// int8_vector.h: vectors for products of bytes; include it in *_int8_simd.cpp files only. They are
// compiled without and with VNNI (cpu_isa.h).
//
//   Ints         kLanes sums, i32
//   Quad         four neighbouring bytes x0 x1 x2 x3 of activations, 0..255, in every lane
//   WeightQuad   four bytes of weights, -128..127, of each lane's own
//   dot(sums, x, w)   sums[l] + x0 w0[l] + x1 w1[l] + x2 w2[l] + x3 w3[l], exact
// The lanes may change places: load_quads() gives each lane bytes of its own, broadcast_weights()
// all lanes the same weights.
//
// VNNI has one instruction for it. Without it `vpmaddubsw` would be next, but that saturates: two
// products of 255 * 127 do not fit into 16 bits. So the bytes are spread to 16 bits, even and odd
// ones apart, and multiplied by `vpmaddwd`, which adds two products exactly. Weights are stored
// spread (kSpread), activations are spread once for all lanes.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"
#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {

inline constexpr bool kVnni = CONVSCOPE_ISA_VNNI;

#if defined(CONVSCOPE_ISA_IS_AVX512) || defined(CONVSCOPE_ISA_IS_AVX2)

// The weights of one lane and four inputs: i8 w0 w1 w2 w3; spread, all lanes' i16 w0 w2 stand
// first, then all lanes' w1 w3.
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
// Every second lane of a, then of b: from the first one on, or from the second.
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints b) {
  const __m512i from = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return {_mm512_permutex2var_epi32(a.v, from, b.v)};
}
CONVSCOPE_INLINE Ints odd_lanes(Ints a, Ints b) {
  const __m512i from = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_epi32(a.v, from, b.v)};
}

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
// Half to even; beyond 2^31 the least integer.
CONVSCOPE_INLINE Ints round_to_ints(Vec a) { return {_mm512_cvtps_epi32(a.v)}; }
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Four vectors as bytes; what lies beyond low..high becomes low or high.
CONVSCOPE_INLINE Bytes to_bytes(const Ints (&a)[4], Bytes low, Bytes high) {
  const __m512i words01 = _mm512_packs_epi32(a[0].v, a[1].v),
                words23 = _mm512_packs_epi32(a[2].v, a[3].v);
  // Both work on quarters of 4 lanes: [vector, quarter] has to be turned.
  const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(turn, _mm512_packus_epi16(words01, words23));
  return {_mm512_min_epu8(_mm512_max_epu8(bytes, low.v), high.v)};
}
CONVSCOPE_INLINE Bytes to_signed_bytes(const Ints (&a)[4], Bytes low, Bytes high) {
  const __m512i words01 = _mm512_packs_epi32(a[0].v, a[1].v);
  const __m512i words23 = _mm512_packs_epi32(a[2].v, a[3].v);
  const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(turn, _mm512_packs_epi16(words01, words23));
  return {_mm512_min_epi8(_mm512_max_epi8(bytes, low.v), high.v)};
}
CONVSCOPE_INLINE Bytes set_bytes(int a) { return {_mm512_set1_epi8(static_cast<char>(a))}; }
// The first `count` of the four vectors' bytes, `step` bytes apart.
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  if (step == kLanes) {
    if (count == 4) return _mm512_storeu_si512(p, a.v);
    return _mm512_mask_storeu_epi8(p, (std::uint64_t{1} << (16 * count)) - 1, a.v);
  }
  __m128i parts[4];
  _mm512_storeu_si512(parts, a.v);
  for (int i = 0; i < count; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + i * step), parts[i]);
}
// How far a is from the nearest integer, below 2^23; and the larger of |a| and |b|.
CONVSCOPE_INLINE Vec distance_to_integer(Vec a, Ints) { return {_mm512_reduce_ps(a.v, 8)}; }
CONVSCOPE_INLINE Vec larger_size(Vec a, Vec b) { return {_mm512_range_ps(a.v, b.v, 11)}; }
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
// The bytes of each lane's channel in four pixels that lie 16 bytes apart.
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
CONVSCOPE_INLINE Bytes to_bytes(const Ints (&a)[4], Bytes low, Bytes high) {
  const __m256i words01 = _mm256_packs_epi32(a[0].v, a[1].v),
                words23 = _mm256_packs_epi32(a[2].v, a[3].v);
  const __m256i turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words01, words23), turn);
  return {_mm256_min_epu8(_mm256_max_epu8(bytes, low.v), high.v)};
}
CONVSCOPE_INLINE Bytes to_signed_bytes(const Ints (&a)[4], Bytes low, Bytes high) {
  const __m256i words01 = _mm256_packs_epi32(a[0].v, a[1].v);
  const __m256i words23 = _mm256_packs_epi32(a[2].v, a[3].v);
  const __m256i turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words01, words23), turn);
  return {_mm256_min_epi8(_mm256_max_epi8(bytes, low.v), high.v)};
}
CONVSCOPE_INLINE Bytes set_bytes(int a) { return {_mm256_set1_epi8(static_cast<char>(a))}; }
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  std::uint64_t parts[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts), a.v);
  for (int i = 0; i < count; ++i) __builtin_memcpy(p + i * step, &parts[i], 8);
}
CONVSCOPE_INLINE Vec distance_to_integer(Vec a, Ints nearest) {
  return {_mm256_sub_ps(a.v, _mm256_cvtepi32_ps(nearest.v))};
}
CONVSCOPE_INLINE Vec larger_size(Vec a, Vec b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_max_ps(_mm256_andnot_ps(sign, a.v), _mm256_andnot_ps(sign, b.v))};
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
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints) { return a; }
CONVSCOPE_INLINE Ints odd_lanes(Ints, Ints b) { return b; }

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {static_cast<float>(a.v)}; }
// The others' rule: half to even; beyond 2^31, and of NaN, the least integer.
CONVSCOPE_INLINE Ints round_to_ints(Vec a) {
  if (!(a.v >= -2147483648.0f && a.v < 2147483648.0f)) return {-2147483647 - 1};
  return {static_cast<std::int32_t>(__builtin_rintf(a.v))};
}
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) { return {static_cast<float>(*p)}; }
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) { return {static_cast<float>(*p)}; }
template <class T>
CONVSCOPE_INLINE Bytes bytes_within(const Ints (&a)[4], Bytes low, Bytes high) {
  Bytes out;
  for (int i = 0; i < 4; ++i) {
    const int least = static_cast<T>(low.v[i]), most = static_cast<T>(high.v[i]);
    const int code = a[i].v < least ? least : a[i].v > most ? most : a[i].v;
    out.v[i] = static_cast<std::uint8_t>(code);
  }
  return out;
}
CONVSCOPE_INLINE Bytes to_bytes(const Ints (&a)[4], Bytes low, Bytes high) {
  return bytes_within<std::uint8_t>(a, low, high);
}
CONVSCOPE_INLINE Bytes to_signed_bytes(const Ints (&a)[4], Bytes low, Bytes high) {
  return bytes_within<std::int8_t>(a, low, high);
}
CONVSCOPE_INLINE Bytes set_bytes(int a) {
  const auto v = static_cast<std::uint8_t>(a);
  return {{v, v, v, v}};
}
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  for (int i = 0; i < count; ++i) p[i * step] = a.v[i];
}
CONVSCOPE_INLINE Vec distance_to_integer(Vec a, Ints nearest) {
  return {a.v - static_cast<float>(nearest.v)};
}
CONVSCOPE_INLINE Vec larger_size(Vec a, Vec b) {
  const float x = __builtin_fabsf(a.v), y = __builtin_fabsf(b.v);
  return {x > y ? x : y};
}
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

// Byte j of four rows, side by side, for 16 bytes of each: to[4 j + i] = rows[i][j].
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
