// SPDX-License-Identifier: Apache-2.0
// pool2d_simd.cpp: two kinds of pooling. For 2x2 windows at stride 2, two vectors of each of two
// rows give one vector of outputs, after their even and odd lanes are separated. For the maximum
// over any window at stride 1 or 2 along W, one vector of outputs is computed at a time.
//
// Method    y is computed row by row; the last vector of a row is partly filled, so rows may be
//           short. In windows other than 2x2, elements are compared one after the other, in reading
//           order, and the index of the largest so far is kept as a float. Outputs whose window is
//           clipped at the left or right edge, or holds a NaN, are computed one by one
// Numerics  max is exact; NaN wins. avg adds ((x00 + x01) + (x10 + x11)) / 4
// Read next pool2d_cpu.cpp: any window, as plain loops
#include "layers/pool2d/pool2d_simd.h"

#include "framework/simd/simd.h"
#include "framework/simd/window_taps.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;
using std::uint8_t;

// The even and odd lanes of a row.
struct EvenOdd {
  Vec even, odd;
};

CONVSCOPE_INLINE EvenOdd pull_apart(Vec a, Vec b) { return {even_lanes(a, b), odd_lanes(a, b)}; }

// Loads the 2 * count floats at p; at most two vectors.
CONVSCOPE_INLINE EvenOdd load_pairs(const float* p, int count) {
  if (count == kLanes) return pull_apart(load(p), load(p + kLanes));
  const int second = 2 * count - kLanes;
  return second > 0 ? pull_apart(load(p), load_first(p + kLanes, second))
                    : pull_apart(load_first(p, 2 * count), zero());
}

CONVSCOPE_INLINE void store_pairs(float* p, Vec even, Vec odd, int count) {
  const Vec low = weave_low(even, odd), high = weave_high(even, odd);
  if (count == kLanes) {
    store(p, low);
    store(p + kLanes, high);
    return;
  }
  const int second = 2 * count - kLanes;
  if (second > 0) {
    store(p, low);
    store_first(p + kLanes, high, second);
  } else {
    store_first(p, low, 2 * count);
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

// Clears the row and the column that no window covers.
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
    store_pairs(dx + in, keep(won(t, 0), g), keep(won(t, 1), g), count);
    store_pairs(dx + in + sizes.w, keep(won(t, 2), g), keep(won(t, 3), g), count);
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

// Loads the elements p[0], p[stride], p[2 stride], ... of `count` outputs.
template <int kStride>
CONVSCOPE_INLINE Vec strided(const float* p, int count) {
  if constexpr (kStride == 1) return count == kLanes ? load(p) : load_first(p, count);
  // The last element is 2 count - 2: no later element is read.
  const int last = 2 * count - 1;
  if (kLanes == 1) return load(p);
  if (last > kLanes) return pull_apart(load(p), load_first(p + kLanes, last - kLanes)).even;
  return pull_apart(load_first(p, last), zero()).even;
}

// Computes `count` neighbouring outputs over rows r_begin..r_end; `from` is the first element of
// the first window. Returns false if a window has a NaN; then y and taps are undefined.
template <int kStride, bool kTaps, int kWidth>
CONVSCOPE_INLINE bool max_vector(const MaxPoolSizes& v, const float* from, int r_begin, int r_end,
                                 int count, float* y, uint8_t* taps) {
  const int width = kWidth > 0 ? kWidth : v.kernel_w;
  Vec best = strided<kStride>(from, count);
  Vec tap = broadcast(static_cast<float>(r_begin * width));
  Mask nan = unordered(best, best);
  for (int r = r_begin; r < r_end; ++r, from += v.w) {
#pragma GCC unroll 3
    for (int s = 0; s < width; ++s) {
      const Vec value = strided<kStride>(from + s, count);
      nan = either(nan, unordered(value, value));
      if (kTaps) {
        const Mask wins = greater(value, best);
        best = choose(wins, best, value);
        tap = choose(wins, tap, broadcast(static_cast<float>(r * width + s)));
      } else {
        best = max(value, best);
      }
    }
  }
  store_first(y, best, count);
  if (kTaps) store_bytes(taps, tap, count);
  return !any(nan);
}

// Computes one row of outputs of one plane; `image` is its first pixel, r_begin..r_end the rows of
// the window inside the image, `top` the image row of r = 0.
template <int kStride, bool kTaps, int kWidth>
CONVSCOPE_INLINE void max_row(const MaxPoolSizes& v, const float* image, int64_t top, int r_begin,
                              int r_end, float* y, uint8_t* taps) {
  const auto one = [&](int64_t q) {
    const int64_t left = q * kStride - v.pad_w;
    const int s_begin = left < 0 ? static_cast<int>(-left) : 0;
    const int s_end =
        left + v.kernel_w > v.w ? static_cast<int>(v.w - left) : static_cast<int>(v.kernel_w);
    int tap = r_begin * v.kernel_w + s_begin;
    float best = image[(top + r_begin) * v.w + left + s_begin];
    for (int r = r_begin; r < r_end; ++r) {
      for (int s = s_begin; s < s_end; ++s) {
        const float value = image[(top + r) * v.w + left + s];
        if (value > best || value != value) {
          best = value;
          tap = r * v.kernel_w + s;
        }
      }
    }
    y[q] = best;
    if (kTaps) taps[q] = static_cast<uint8_t>(tap);
  };
  int64_t q = 0;
  for (; q < v.whole_begin; ++q) one(q);
  const float* const row = image + (top + r_begin) * v.w - v.pad_w;
  while (q < v.whole_end) {
    const float* const from = row + q * kStride;
    uint8_t* const to = kTaps ? taps + q : nullptr;
    const int count = v.whole_end - q < kLanes ? static_cast<int>(v.whole_end - q) : kLanes;
    const bool good =
        count == kLanes
            ? max_vector<kStride, kTaps, kWidth>(v, from, r_begin, r_end, kLanes, y + q, to)
            : max_vector<kStride, kTaps, kWidth>(v, from, r_begin, r_end, count, y + q, to);
    for (int i = 0; i < count && !good; ++i) one(q + i);
    q += count;
  }
  for (; q < v.q; ++q) one(q);
}

template <int kStride, bool kTaps, int kWidth>
void max_planes(const MaxPoolSizes& v, const float* x, float* y, uint8_t* taps) {
  for (int64_t plane = 0; plane < v.planes; ++plane) {
    for (int64_t p = 0; p < v.p; ++p) {
      const int64_t top = p * v.stride_h - v.pad_h;
      const int r_begin = top < 0 ? static_cast<int>(-top) : 0;
      const int r_end =
          top + v.kernel_h > v.h ? static_cast<int>(v.h - top) : static_cast<int>(v.kernel_h);
      const int64_t out = (plane * v.p + p) * v.q;
      max_row<kStride, kTaps, kWidth>(v, x + plane * v.h * v.w, top, r_begin, r_end, y + out,
                                      kTaps ? taps + out : nullptr);
    }
  }
}

template <int kStride, int kWidth>
void max_any_taps(const MaxPoolSizes& v, const float* x, float* y, uint8_t* taps) {
  if (taps == nullptr) return max_planes<kStride, false, kWidth>(v, x, y, taps);
  max_planes<kStride, true, kWidth>(v, x, y, taps);
}

void max_any(const MaxPoolSizes& v, const float* x, float* y, uint8_t* taps) {
  const bool three = v.kernel_w == 3;
  if (v.stride_w == 1) {
    return three ? max_any_taps<1, 3>(v, x, y, taps) : max_any_taps<1, 0>(v, x, y, taps);
  }
  three ? max_any_taps<2, 3>(v, x, y, taps) : max_any_taps<2, 0>(v, x, y, taps);
}

}  // namespace
constexpr Pool2x2Kernels kPool2x2{.max_forward = max_forward,
                                  .max_backward = max_backward,
                                  .avg_forward = avg_forward,
                                  .avg_backward = avg_backward,
                                  .max_any = max_any};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(pool2x2_kernels, convscope::CONVSCOPE_ISA::kPool2x2)
