// SPDX-License-Identifier: Apache-2.0
// depthwise_strips.h: functions that split a row of pixels into vectors and read the taps of a
// kernel row. depthwise_forward_simd.cpp and depthwise_backward_simd.cpp use them.
//
// GCC 12 keeps an array on the stack when a loop without unrolling indexes it, so every loop over V
// arrays has an unroll pragma.
#pragma once

#include "framework/int_math.h"
#include "framework/simd/row_vector.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/depthwise/cpu/depthwise_planes.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

CONVSCOPE_INLINE Index least(Index a, Index b) { return a < b ? a : b; }
CONVSCOPE_INLINE Index most(Index a, Index b) { return a > b ? a : b; }

using Wide = WidePixels;
using Narrow = NarrowPixels;

// loaded   one load for each tap; with stride 2, two loads for each pair of taps (even and odd
// elements)
// shifted  each pixel is loaded once and shifted through registers to its neighbours
// alone    the strip contains the whole row, and neighbours outside the row are zero
enum class Taps { loaded, shifted, alone };

// The columns of a row that are computed together: one vector or two neighbouring vectors.
template <class Lanes, int Vectors, bool IsMasked, Taps How>
struct Strip {
  using L = Lanes;
  using V = typename L::V;
  static constexpr int kVectors = Vectors;
  static constexpr bool kMasked = IsMasked;
  static constexpr Taps kTaps = How;
  static constexpr Index kPixels = Index{Vectors} * L::kCount;
};

template <int Rows>
struct Height {
  static constexpr int kRows = Rows;
};

// Tells whether x and y have the same columns. Tap s then reads column q + s - S/2.
CONVSCOPE_INLINE bool same_columns(const DepthwiseMap& z) {
  return z.w == z.q && z.stride_w == 1 && z.dilation_w == 1 && z.pad_left == z.s / 2;
}

// Tells whether one strip of `pixels` outputs covers the row, and its aligned loads contain every
// column that these outputs read.
template <int S, int Stride>
CONVSCOPE_INLINE bool fits_alone(const DepthwiseMap& z, Index pixels) {
  if constexpr (Stride == 1) return same_columns(z) && z.q <= pixels;
  return S == 3 && z.q <= pixels && z.w + z.pad_left <= 2 * pixels && z.pad_left >= 0;
}

// Tells whether the unrolled loops support the problem. They need a square kernel and equal strides
// of 1 or 2; with stride 2 they do not support dilation.
CONVSCOPE_INLINE bool unrolled_fits(const DepthwiseMap& z) {
  if (z.r != z.s || z.stride_h != z.stride_w) return false;
  return z.stride_h == 1 || (z.stride_h == 2 && z.dilation_h == 1 && z.dilation_w == 1);
}

// The number of rows of y that share loads of x. For 3x3 with AVX-512, the 9 taps, 7 x 2
// accumulators and 6 elements of a row fill 29 of 32 registers. The heights of ImageNet's feature
// maps (7, 14, 28, ...) are multiples of 7.
template <int S>
constexpr int kRowsAtOnce = S == 3 && kRegisters == 32 ? 7 : 4;

// The prefetch distance in floats. It is 4 KiB, which takes about 100 ns at 30 GB/s.
constexpr Index kAhead = 1024;
// Planes with at least this many pixels are prefetched from memory. Smaller planes are mostly in a
// cache, where the prefetch instructions cost more time than they save.
constexpr Index kFarPlane = 8192;

// Prefetches the cache lines of `count` floats; an address outside any array is harmless.
template <bool ToWrite>
CONVSCOPE_INLINE void ask_for(const float* from, Index count) {
  for (Index i = 0; i < count; i += 16) __builtin_prefetch(from + i, ToWrite ? 1 : 0, 2);
}

// Tells whether one strip is the whole row. Masks and loop bounds are then set up once for many
// planes.
template <int S, int Stride>
CONVSCOPE_INLINE bool one_strip(const DepthwiseMap& z) {
  return kMasksAreFree && fits_alone<S, Stride>(z, Wide::kCount * (S == 3 && Stride == 1 ? 2 : 1));
}

// Returns the first output of a row whose loads are all inside the row.
CONVSCOPE_INLINE Index inside_begin(const DepthwiseMap& z) {
  return z.pad_left <= 0 ? 0 : ceil_div(z.pad_left, z.stride_w);
}
CONVSCOPE_INLINE Index inside_end(const DepthwiseMap& z) {
  // Stride 2 reads one element more than it uses.
  const Index reach = (z.s - 1) * z.dilation_w + (z.stride_w == 2 ? 2 : 0);
  const Index last = z.w - 1 + z.pad_left - reach;
  return last < 0 ? 0 : last / z.stride_w + 1;
}

// Splits `q` pixels into vectors: calls body(Strip<...>{}, begin, end) for the vectors that start
// in [begin, end). Pixels [inside, inside_end) need no border masks.
template <class Body>
CONVSCOPE_INLINE void cut_loaded(Index q, Index inside, Index inside_end, Body body) {
  if constexpr (kMasksAreFree) {
    const Index rest = q % Wide::kCount;
    const Index wide = rest > Narrow::kCount ? q : q - rest;
    if (wide > 0) body(Strip<Wide, 1, true, Taps::loaded>{}, Index{0}, wide);
    if (wide < q) body(Strip<Narrow, 1, true, Taps::loaded>{}, wide, q);
  } else {
    const Index n = Wide::kCount;
    const Index left = least(ceil_div(most(inside, 0), n) * n, q);
    const Index right = left + most(0, least(inside_end, q) - left) / n * n;
    if (left > 0) body(Strip<Wide, 1, true, Taps::loaded>{}, Index{0}, left);
    if (right > left) body(Strip<Wide, 1, false, Taps::loaded>{}, left, right);
    if (q > right) body(Strip<Wide, 1, true, Taps::loaded>{}, right, q);
  }
}

// Splits the rows of y into strips of the cheapest kind.
template <int S, int Stride, class Body>
CONVSCOPE_INLINE void for_strips(const DepthwiseMap& z, Body body) {
  if constexpr (kMasksAreFree) {
    constexpr Index kZero = 0;
    constexpr bool kAlone = Stride == 1 || S == 3;
    if constexpr (kAlone) {
      if (fits_alone<S, Stride>(z, Narrow::kCount)) {
        return body(Strip<Narrow, 1, true, Taps::alone>{}, kZero, z.q);
      }
      if (fits_alone<S, Stride>(z, Wide::kCount)) {
        return body(Strip<Wide, 1, true, Taps::alone>{}, kZero, z.q);
      }
    }
    if constexpr (S == 3 && Stride == 1) {
      if (fits_alone<S, Stride>(z, 2 * Wide::kCount)) {
        return body(Strip<Wide, 2, true, Taps::alone>{}, kZero, z.q);
      }
      if (z.dilation_w == 1) {  // pairs of vectors share loads
        const Index rest = z.q % (2 * Wide::kCount);
        const Index pairs = rest > Wide::kCount ? z.q : z.q - rest;
        if (pairs > 0) body(Strip<Wide, 2, true, Taps::shifted>{}, kZero, pairs);
        if (pairs < z.q) body(Strip<Wide, 1, true, Taps::loaded>{}, pairs, z.q);
        return;
      }
    }
    constexpr bool kLongRow = Stride == 1 && S >= 5;
    if ((kLongRow && same_columns(z)) || (Stride == 2 && S == 3)) {
      if constexpr (kLongRow || (Stride == 2 && S == 3)) {
        const Index rest = z.q % Wide::kCount;
        const Index wide = rest > Narrow::kCount ? z.q : z.q - rest;
        if (wide > 0) body(Strip<Wide, 1, true, Taps::shifted>{}, kZero, wide);
        if (wide < z.q) body(Strip<Narrow, 1, true, Taps::shifted>{}, wide, z.q);
        return;
      }
    }
  }
  cut_loaded(z.q, inside_begin(z), inside_end(z), body);
}

// ---- one row of x and all taps of a kernel row -------------------------------------------------

// The masks of the lanes of each load that are inside the row, and of the lanes of each result that
// are stored.
template <class Kind, int S, int Stride>
struct Borders {
  using L = typename Kind::L;
  static constexpr int kVectors = Kind::kVectors;
  static constexpr int kLoads = Kind::kTaps == Taps::alone     ? kVectors * Stride
                                : Kind::kTaps == Taps::shifted ? (kVectors == 2 ? 4 : 3)
                                : Stride == 1                  ? S
                                                               : (S + 1) / 2 * 2;
  typename L::Mask lanes[kLoads];
  typename L::Mask keep[kVectors];

  // Sets the masks for outputs whose tap 0 starts at column `at` of x. Only the first `count` lanes
  // are used.
  CONVSCOPE_INLINE Borders(Index at, Index width, Index dilation, Index count) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) keep[v] = lanes_inside<L>(0, count - v * L::kCount);
#pragma GCC unroll 8
    for (int i = 0; i < kLoads; ++i) {
      Index limit = L::kCount;
      if (Kind::kTaps == Taps::loaded) {
        limit = most(Stride == 1 ? count : 2 * count - i % 2 * L::kCount, 0);
      } else if (kVectors == 2 && Kind::kTaps == Taps::shifted && i >= 2) {
        limit = most(count - L::kCount, 0);
      }
      lanes[i] = lanes_inside<L>(at + offset(i, dilation), width, limit);
    }
  }
  // Returns the column of load i relative to the column of tap 0.
  CONVSCOPE_INLINE static Index offset(int i, Index dilation) {
    const Index n = L::kCount;
    if (Kind::kTaps == Taps::alone) return Stride == 1 ? i * n + S / 2 : i * n;
    if (Kind::kTaps == Taps::shifted) {
      if (Stride == 2) return i * n;
      if (kVectors == 2) return i < 2 ? i : n + i - 1;  // 0, 1, n + 1, n + 2
      return S / 2 + (i - 1) * n;
    }
    return Stride == 1 ? i * dilation : i / 2 * 2 + i % 2 * n;
  }
};

template <class L, int S, int At>
CONVSCOPE_INLINE void shift_taps(typename L::V (&x)[S], typename L::V before, typename L::V here,
                                 typename L::V after, typename L::Mask keep) {
  if constexpr (At < S) {
    x[At] = L::template shift<At - S / 2>(before, here, after, keep);
    shift_taps<L, S, At + 1>(x, before, here, after, keep);
  }
}

template <class Kind, int S, int Stride>
CONVSCOPE_INLINE void load_taps(typename Kind::V (&x)[Kind::kVectors][S], const float* row,
                                Index dilation, const Borders<Kind, S, Stride>& borders) {
  using L = typename Kind::L;
  using V = typename Kind::V;
  using B = Borders<Kind, S, Stride>;
  const auto load = [&](int i) __attribute__((always_inline)) {
    const float* const p = row + B::offset(i, dilation);
    if constexpr (Kind::kMasked) return L::load(p, borders.lanes[i]);
    return L::load(p);
  };
  if constexpr (Kind::kTaps == Taps::loaded) {
    if constexpr (Stride == 1) {
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) x[0][s] = load(s);
    } else {
#pragma GCC unroll 8
      for (int s = 0; s < S; s += 2) {
        const V low = load(s);
        const V high = load(s + 1);
        x[0][s] = L::even(low, high);
        if (s + 1 < S) x[0][s + 1] = L::odd(low, high);
      }
    }
  } else if constexpr (Stride == 2) {  // S = 3: tap 2 of a pixel is tap 0 of the next pixel
    const V low = load(0);
    const V high = load(1);
    const V next = Kind::kTaps == Taps::alone ? L::zero() : load(2 % B::kLoads);
    x[0][0] = L::even(low, high, borders.keep[0]);
    x[0][1] = L::odd(low, high, borders.keep[0]);
    x[0][2] = L::template shift<1>(low, L::even(low, high), next, borders.keep[0]);
  } else if constexpr (Kind::kTaps == Taps::alone && Kind::kVectors == 1) {
    shift_taps<L, S, 0>(x[0], L::zero(), load(0), L::zero(), borders.keep[0]);
  } else if constexpr (Kind::kTaps == Taps::alone) {
    const V left = load(0);
    const V right = load(1);
    shift_taps<L, S, 0>(x[0], L::zero(), left, right, borders.keep[0]);
    shift_taps<L, S, 0>(x[1], left, right, L::zero(), borders.keep[1]);
  } else if constexpr (Kind::kVectors == 2) {  // S = 3
    x[0][0] = load(0);
    x[0][1] = load(1);
    x[1][1] = load(2);
    x[0][2] = L::template shift<1>(x[0][1], x[0][1], x[1][1], borders.keep[0]);
    x[1][0] = L::template shift<-1>(x[0][1], x[1][1], x[1][1], borders.keep[1]);
    x[1][2] = load(3);
  } else {
    shift_taps<L, S, 0>(x[0], load(0), load(1), load(2), borders.keep[0]);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA
