// SPDX-License-Identifier: Apache-2.0
// pool2d_simd.cpp: pooling with 2x2 windows at stride 2: one vector of outputs from two vectors of
// each of two rows, whose even and odd lanes are pulled apart.
//
// Plan      row after row of y; the last vector of a row is partly filled, so rows may be short
// Numerics  max is exact; NaN wins. avg adds ((x00 + x01) + (x10 + x11)) / 4
// Read next pool2d_cpu.cpp: any window, as plain loops
#include "layers/pool2d_simd.h"

#include "framework/simd.h"
#include "framework/simd_math.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;
using std::uint8_t;

// What simd.h does not have: even and odd lanes of a row, and which of two is larger.
struct EvenOdd {
  Vec even, odd;
};

#if defined(CONVSCOPE_ISA_IS_AVX512)

using Mask = __mmask16;
CONVSCOPE_INLINE EvenOdd pull_apart(Vec a, Vec b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {{_mm512_permutex2var_ps(a.v, even, b.v)}, {_mm512_permutex2var_ps(a.v, odd, b.v)}};
}
// Inverse: the first and the second half of even0 odd0 even1 odd1 ...
CONVSCOPE_INLINE EvenOdd weave(Vec even, Vec odd) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return {{_mm512_permutex2var_ps(even.v, first, odd.v)},
          {_mm512_permutex2var_ps(even.v, second, odd.v)}};
}
// Lanes where b beats a: larger, or NaN.
CONVSCOPE_INLINE Mask beats(Vec b, Vec a) {
  return static_cast<Mask>(_mm512_cmp_ps_mask(b.v, a.v, _CMP_GT_OQ) |
                           _mm512_cmp_ps_mask(b.v, b.v, _CMP_UNORD_Q));
}
CONVSCOPE_INLINE Vec choose(Mask second, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(second, a.v, b.v)};
}
// tap = below ? 2 + right_below : right_above
CONVSCOPE_INLINE void store_taps(uint8_t* to, Mask below, Mask right_above, Mask right_below,
                                 int count) {
  const auto right = static_cast<Mask>((below & right_below) | (~below & right_above));
  const __m128i taps = _mm_or_si128(_mm_maskz_set1_epi8(below, 2), _mm_maskz_set1_epi8(right, 1));
  _mm_mask_storeu_epi8(to, first_lanes(count), taps);
}
struct Taps {
  __m128i v;
};
CONVSCOPE_INLINE Taps load_taps(const uint8_t* from, int count) {
  return {_mm_maskz_loadu_epi8(first_lanes(count), from)};
}
// dy where the tap is `tap`, else 0.
CONVSCOPE_INLINE Vec only_where(Taps taps, int tap, Vec dy) {
  return {_mm512_maskz_mov_ps(_mm_cmpeq_epi8_mask(taps.v, _mm_set1_epi8(static_cast<char>(tap))),
                              dy.v)};
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

using Mask = __m256;
CONVSCOPE_INLINE __m256 swap_middle(__m256 mixed) {  // pairs of floats 0 1 2 3 -> 0 2 1 3
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
}
CONVSCOPE_INLINE EvenOdd pull_apart(Vec a, Vec b) {
  return {{swap_middle(_mm256_shuffle_ps(a.v, b.v, 0x88))},
          {swap_middle(_mm256_shuffle_ps(a.v, b.v, 0xdd))}};
}
CONVSCOPE_INLINE EvenOdd weave(Vec even, Vec odd) {
  const __m256 low = _mm256_unpacklo_ps(even.v, odd.v);
  const __m256 high = _mm256_unpackhi_ps(even.v, odd.v);
  return {{_mm256_permute2f128_ps(low, high, 0x20)}, {_mm256_permute2f128_ps(low, high, 0x31)}};
}
CONVSCOPE_INLINE Mask beats(Vec b, Vec a) {
  return _mm256_or_ps(_mm256_cmp_ps(b.v, a.v, _CMP_GT_OQ), _mm256_cmp_ps(b.v, b.v, _CMP_UNORD_Q));
}
CONVSCOPE_INLINE Vec choose(Mask second, Vec a, Vec b) {
  return {_mm256_blendv_ps(a.v, b.v, second)};
}
CONVSCOPE_INLINE void store_taps(uint8_t* to, Mask below, Mask right_above, Mask right_below,
                                 int count) {
  const __m256i right = _mm256_castps_si256(_mm256_blendv_ps(right_above, right_below, below));
  const __m256i taps =
      _mm256_or_si256(_mm256_and_si256(_mm256_castps_si256(below), _mm256_set1_epi32(2)),
                      _mm256_and_si256(right, _mm256_set1_epi32(1)));
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(taps), _mm256_extracti128_si256(taps, 1));
  const __m128i bytes = _mm_packus_epi16(words, words);
  auto packed = static_cast<unsigned long long>(_mm_cvtsi128_si64(bytes));
  if (count == kLanes) {
    __builtin_memcpy(to, &packed, kLanes);
  } else {
    for (int i = 0; i < count; ++i, packed >>= 8) to[i] = static_cast<uint8_t>(packed & 0xff);
  }
}
struct Taps {
  __m256i v;
};
CONVSCOPE_INLINE Taps load_taps(const uint8_t* from, int count) {
  unsigned long long packed = 0;
  if (count == kLanes) {
    __builtin_memcpy(&packed, from, kLanes);
  } else {
    for (int i = 0; i < count; ++i) packed |= static_cast<unsigned long long>(from[i]) << (8 * i);
  }
  return {_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(packed)))};
}
CONVSCOPE_INLINE Vec only_where(Taps taps, int tap, Vec dy) {
  const __m256i here = _mm256_cmpeq_epi32(taps.v, _mm256_set1_epi32(tap));
  return {_mm256_and_ps(dy.v, _mm256_castsi256_ps(here))};
}

#else  // one lane

using Mask = bool;
CONVSCOPE_INLINE EvenOdd pull_apart(Vec a, Vec b) { return {a, b}; }
CONVSCOPE_INLINE EvenOdd weave(Vec even, Vec odd) { return {even, odd}; }
// Without branches: which of two pixels is larger cannot be predicted.
CONVSCOPE_INLINE Mask beats(Vec b, Vec a) { return (b.v > a.v) | (b.v != b.v); }
CONVSCOPE_INLINE Vec choose(Mask second, Vec a, Vec b) { return {choose_if(second, b.v, a.v)}; }
CONVSCOPE_INLINE void store_taps(uint8_t* to, Mask below, Mask right_above, Mask right_below, int) {
  *to = static_cast<uint8_t>(2 * below + ((below & right_below) | (!below & right_above)));
}
struct Taps {
  uint8_t v;
};
CONVSCOPE_INLINE Taps load_taps(const uint8_t* from, int) { return {*from}; }
CONVSCOPE_INLINE Vec only_where(Taps taps, int tap, Vec dy) {
  return {choose_if(taps.v == tap, dy.v, 0.0f)};
}

#endif

// The 2 * count floats at p; at most two vectors.
CONVSCOPE_INLINE EvenOdd load_pairs(const float* p, int count) {
  if (count == kLanes) return pull_apart(load(p), load(p + kLanes));
  const int second = 2 * count - kLanes;
  return second > 0 ? pull_apart(load(p), load_first(p + kLanes, second))
                    : pull_apart(load_first(p, 2 * count), zero());
}

CONVSCOPE_INLINE void store_pairs(float* p, Vec even, Vec odd, int count) {
  const EvenOdd halves = weave(even, odd);
  if (count == kLanes) {
    store(p, halves.even);
    store(p + kLanes, halves.odd);
    return;
  }
  const int second = 2 * count - kLanes;
  if (second > 0) {
    store(p, halves.even);
    store_first(p + kLanes, halves.odd, second);
  } else {
    store_first(p, halves.even, 2 * count);
  }
}

// Calls body(offset of the window row in x, offset in y, count) for each vector of outputs.
template <class Body>
CONVSCOPE_INLINE void for_each_vector(const Pool2x2Sizes& sizes, const Body& body) {
  for (int64_t plane = 0; plane < sizes.planes; ++plane) {
    for (int64_t p = 0; p < sizes.p; ++p) {
      const int64_t in = (plane * sizes.h + 2 * p) * sizes.w;
      const int64_t out = (plane * sizes.p + p) * sizes.q;
      int64_t q = 0;
      for (; q + kLanes <= sizes.q; q += kLanes) body(in + 2 * q, out + q, kLanes);
      if (q < sizes.q) body(in + 2 * q, out + q, static_cast<int>(sizes.q - q));
    }
  }
}

// Zeros for the row and the column that no window covers.
void clear_rest(const Pool2x2Sizes& sizes, float* dx) {
  if (2 * sizes.p == sizes.h && 2 * sizes.q == sizes.w) return;
  for (int64_t plane = 0; plane < sizes.planes; ++plane) {
    float* const image = dx + plane * sizes.h * sizes.w;
    for (int64_t i = 0; i < sizes.h; ++i) {
      const int64_t first = i < 2 * sizes.p ? 2 * sizes.q : 0;
      for (int64_t j = first; j < sizes.w; ++j) image[i * sizes.w + j] = 0.0f;
    }
  }
}

void max_forward(const Pool2x2Sizes& sizes, const float* x, float* y, uint8_t* taps) {
  for_each_vector(sizes, [&](int64_t in, int64_t out, int count) {
    const EvenOdd above = load_pairs(x + in, count);
    const EvenOdd below = load_pairs(x + in + sizes.w, count);
    const Mask right_above = beats(above.odd, above.even);
    const Mask right_below = beats(below.odd, below.even);
    const Vec first = choose(right_above, above.even, above.odd);
    const Vec second = choose(right_below, below.even, below.odd);
    const Mask lower = beats(second, first);
    store_first(y + out, choose(lower, first, second), count);
    if (taps != nullptr) store_taps(taps + out, lower, right_above, right_below, count);
  });
}

void max_backward(const Pool2x2Sizes& sizes, const float* dy, const uint8_t* taps, float* dx) {
  clear_rest(sizes, dx);
  for_each_vector(sizes, [&](int64_t in, int64_t out, int count) {
    const Vec g = load_first(dy + out, count);
    const Taps t = load_taps(taps + out, count);
    store_pairs(dx + in, only_where(t, 0, g), only_where(t, 1, g), count);
    store_pairs(dx + in + sizes.w, only_where(t, 2, g), only_where(t, 3, g), count);
  });
}

void avg_forward(const Pool2x2Sizes& sizes, const float* x, float* y) {
  const Vec quarter = broadcast(0.25f);
  for_each_vector(sizes, [&](int64_t in, int64_t out, int count) {
    const EvenOdd above = load_pairs(x + in, count);
    const EvenOdd below = load_pairs(x + in + sizes.w, count);
    const Vec total = (above.even + above.odd) + (below.even + below.odd);
    store_first(y + out, total * quarter, count);
  });
}

void avg_backward(const Pool2x2Sizes& sizes, const float* dy, float* dx) {
  const Vec quarter = broadcast(0.25f);
  clear_rest(sizes, dx);
  for_each_vector(sizes, [&](int64_t in, int64_t out, int count) {
    const Vec g = load_first(dy + out, count) * quarter;
    store_pairs(dx + in, g, g, count);
    store_pairs(dx + in + sizes.w, g, g, count);
  });
}

}  // namespace
constexpr Pool2x2Kernels kPool2x2{.max_forward = max_forward,
                                  .max_backward = max_backward,
                                  .avg_forward = avg_forward,
                                  .avg_backward = avg_backward};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(pool2x2_kernels, convscope::CONVSCOPE_ISA::kPool2x2)
