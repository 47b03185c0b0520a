// SPDX-License-Identifier: Apache-2.0
// depthwise_simd.cpp: one plane of a depthwise convolution, neighbouring pixels of a row in the
// vector lanes. depthwise_cpu.cpp says what is computed and who calls these.
//
// Each direction has a form for kernels 3x3, 5x5 and 7x7 whose loops over taps are unrolled, so that
// taps or sums stay in registers, and a plain form for any other problem at the end of the file.
// GCC 12 keeps an array that an ordinary loop indexes on the stack: every loop over V arrays has an
// unroll pragma.
#include "layers/conv2d/depthwise_lanes.h"
#include "layers/conv2d/depthwise_planes.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

CONVSCOPE_INLINE Index least(Index a, Index b) { return a < b ? a : b; }
CONVSCOPE_INLINE Index most(Index a, Index b) { return a > b ? a : b; }
CONVSCOPE_INLINE Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }  // a >= 0

#if defined(CONVSCOPE_ISA_IS_AVX512)
using Wide = SixteenPixels;
using Narrow = EightPixels;
constexpr bool kMasksAreFree = true;  // a masked load costs no more than a plain one
#elif defined(CONVSCOPE_ISA_IS_AVX2)
using Wide = EightPixels;
using Narrow = EightPixels;
constexpr bool kMasksAreFree = false;
#else
using Wide = OnePixel;
using Narrow = OnePixel;
constexpr bool kMasksAreFree = false;
#endif

// How a vector sees the taps of a row: by a load for each; by three loads (the pixels before it, its
// own and those behind) shifted in registers; or, when it holds the whole row, by one load shifted.
enum class Taps { loaded, shifted, alone };

template <class Lanes, bool IsMasked, Taps How = Taps::loaded>
struct Strip {  // a kind of vector; the bodies below are instantiated for each
  using L = Lanes;
  static constexpr bool kMasked = IsMasked;
  static constexpr Taps kTaps = How;
};

template <int Rows>
struct Height {
  static constexpr int kRows = Rows;
};

// Cuts a row of `q` pixels into vectors: body(Strip<...>{}, begin, end) takes the vectors that start
// in [begin, end). Pixels [inside, inside_end) read no border.
template <Taps Same = Taps::loaded, class Body>
CONVSCOPE_INLINE void for_strips(Index q, Index inside, Index inside_end, bool same, Body body) {
  if constexpr (kMasksAreFree) {
    if constexpr (Same != Taps::loaded) {
      if (same && q <= Narrow::kCount) {
        return body(Strip<Narrow, true, Taps::alone>{}, Index{0}, q);
      }
      if (same && q <= Wide::kCount) return body(Strip<Wide, true, Taps::alone>{}, Index{0}, q);
    }
    const Index rest = q % Wide::kCount;
    const Index wide = rest > Narrow::kCount ? q : q - rest;
    if constexpr (Same == Taps::shifted) {
      if (same) {
        if (wide > 0) body(Strip<Wide, true, Taps::shifted>{}, Index{0}, wide);
        if (wide < q) body(Strip<Narrow, true, Taps::shifted>{}, wide, q);
        return;
      }
    }
    if (wide > 0) body(Strip<Wide, true>{}, Index{0}, wide);
    if (wide < q) body(Strip<Narrow, true>{}, wide, q);
  } else {
    const Index n = Wide::kCount;
    const Index left = least(ceil_div(most(inside, 0), n) * n, q);
    const Index right = left + most(0, least(inside_end, q) - left) / n * n;
    if (left > 0) body(Strip<Wide, true>{}, Index{0}, left);
    if (right > left) body(Strip<Wide, false>{}, left, right);
    if (q > right) body(Strip<Wide, true>{}, right, q);
  }
}

// ---- one row of x, seen by all taps of a kernel row --------------------------------------------

// Which lanes of the loads of one vector lie in the row. Stride 1: a load for each s. Stride 2: two
// loads for each pair of taps, of which s takes the even or the odd elements.
template <class Kind, int S, int Stride>
struct Borders {
  using L = typename Kind::L;
  static constexpr int kLoads = Kind::kTaps != Taps::loaded ? 4 : Stride == 1 ? S : (S + 1) / 2 * 2;
  typename L::Mask lanes[kLoads];

  // at: the column of tap 0; count: outputs in this vector.
  CONVSCOPE_INLINE Borders(Index at, Index width, Index dilation, Index count) {
    if constexpr (Kind::kTaps != Taps::loaded) {
      for (int i = 0; i < 3; ++i) {
        lanes[i] = lanes_inside<L>(at + S / 2 + (i - 1) * L::kCount, width);
      }
      lanes[3] = lanes_inside<L>(0, count);
      return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kLoads; ++i) {
      const Index offset = Stride == 1 ? i * dilation : i / 2 * 2 + i % 2 * L::kCount;
      const Index limit = Stride == 1 ? count : 2 * count - i % 2 * L::kCount;
      lanes[i] = lanes_inside<L>(at + offset, width, most(limit, 0));
    }
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
CONVSCOPE_INLINE void load_taps(typename Kind::L::V (&x)[S], const float* row, Index dilation,
                                const Borders<Kind, S, Stride>& borders) {
  using L = typename Kind::L;
  const auto at = [&](const float* p, int i) __attribute__((always_inline)) {
    if constexpr (Kind::kMasked) return L::load(p, borders.lanes[i]);
    return L::load(p);
  };
  if constexpr (Kind::kTaps == Taps::alone) {
    shift_taps<L, S, 0>(x, L::zero(), at(row + S / 2, 1), L::zero(), borders.lanes[3]);
  } else if constexpr (Kind::kTaps == Taps::shifted) {
    const float* const here = row + S / 2;
    shift_taps<L, S, 0>(x, at(here - L::kCount, 0), at(here, 1), at(here + L::kCount, 2),
                        borders.lanes[3]);
  } else if constexpr (Stride == 1) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) x[s] = at(row + s * dilation, s);
  } else {
#pragma GCC unroll 8
    for (int s = 0; s < S; s += 2) {
      const typename L::V low = at(row + s, s);
      const typename L::V high = at(row + s + L::kCount, s + 1);
      x[s] = L::even(low, high);
      if (s + 1 < S) x[s + 1] = L::odd(low, high);
    }
  }
}

// The same columns in x and y: taps are shifts by -S/2 .. S/2. Three loads instead of S pay from 5 on.
CONVSCOPE_INLINE bool same_columns(const DepthwiseMap& z) {
  return z.w == z.q && z.stride_w == 1 && z.dilation_w == 1 && z.pad_left == z.s / 2;
}
template <int S, int Stride>
constexpr Taps kSameTaps = Stride != 1 ? Taps::loaded
                           : S >= 5    ? Taps::shifted
                                       : Taps::alone;

// Outputs [inside, inside_end) of a row whose loads all lie in the row.
CONVSCOPE_INLINE Index inside_begin(const DepthwiseMap& z) {
  return z.pad_left <= 0 ? 0 : ceil_div(z.pad_left, z.stride_w);
}
CONVSCOPE_INLINE Index inside_end(const DepthwiseMap& z) {
  // Stride 2 reads one element more than it uses.
  const Index reach = (z.s - 1) * z.dilation_w + (z.stride_w == 2 ? 2 : 0);
  const Index last = z.w - 1 + z.pad_left - reach;
  return last < 0 ? 0 : last / z.stride_w + 1;
}

// ---- forward -----------------------------------------------------------------------------------

// A run of rows that one vector of columns is computed for, before the next vector: all of a narrow
// plane, so that taps and masks are made once; 4 of a wide one, so that rows are read in order.
CONVSCOPE_INLINE Index band_rows(Index rows, Index columns) {
  constexpr Index kWide = 4 * Wide::kCount;
  return columns < kWide ? rows : 4;
}

// Rows [p, p + Rows) of y, one vector: each row of x is loaded once and multiplied into all sums it
// belongs to.
template <class Kind, int R, int S, int Stride, int Rows>
CONVSCOPE_INLINE void forward_rows(const DepthwiseMap& z, const float* x,
                                   const typename Kind::L::V (&taps)[R * S],
                                   const Borders<Kind, S, Stride>& borders,
                                   typename Kind::L::Mask here, Index count, float start,
                                   bool accumulate, Index p, float* y) {
  using L = typename Kind::L;
  typename L::V sums[Rows];  // [Rows, kCount]
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    sums[i] = accumulate ? L::load(y + (p + i) * z.q, here) : L::set(start);
  }
#pragma GCC unroll 16
  for (int j = 0; j < (Rows - 1) * Stride + R; ++j) {
    const Index h = p * Stride - z.pad_top + j * z.dilation_h;
    if (h < 0 || h >= z.h) continue;
    typename L::V row[S];
    load_taps<Kind, S, Stride>(row, x + h * z.w, z.dilation_w, borders);
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const int r = j - i * Stride;
        if (r >= 0 && r < R) sums[i] = L::fma(taps[r * S + s], row[s], sums[i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    float* const to = y + (p + i) * z.q;
    if (!Kind::kMasked || count == L::kCount) {
      L::store(to, sums[i]);
    } else {
      L::store(to, sums[i], here);
    }
  }
}

template <int R, int S, int Stride>
void forward_unrolled(const DepthwiseMap& z, const float* x, const float* w, float start,
                      bool accumulate, float* y) {
  const Index band = band_rows(z.p, z.q);
  for (Index first = 0; first < z.p; first += band) {
    const Index last = least(first + band, z.p);
    for_strips<kSameTaps<S, Stride>>(
        z.q, inside_begin(z), inside_end(z),
        same_columns(z), [&](auto strip, Index begin, Index end) __attribute__((always_inline)) {
          using Kind = decltype(strip);
          using L = typename Kind::L;
          typename L::V taps[R * S];
#pragma GCC unroll 64
          for (int i = 0; i < R * S; ++i) taps[i] = L::set(w[i]);
          for (Index q = begin; q < end; q += L::kCount) {
            const Index count = least(L::kCount, z.q - q);
            const Index left = q * Stride - z.pad_left;
            const auto here = lanes_inside<L>(0, count);
            const Borders<Kind, S, Stride> borders(left, z.w, z.dilation_w, L::kCount);
            const auto rows = [&](auto height, Index p) __attribute__((always_inline)) {
              forward_rows<Kind, R, S, Stride, decltype(height)::kRows>(
                  z, x + left, taps, borders, here, count, start, accumulate, p, y + q);
            };
            Index p = first;
            if (z.dilation_h == 1) {  // rows share loads only when their taps meet
              for (; p + 4 <= last; p += 4) rows(Height<4>{}, p);
              for (; p + 2 <= last; p += 2) rows(Height<2>{}, p);
            }
            for (; p < last; ++p) rows(Height<1>{}, p);
          }
        });
  }
}

// Any problem: one tap after the other over a row.
void forward_plain(const DepthwiseMap& z, const float* x, const float* w, float start,
                   bool accumulate, float* y) {
  for (Index p = 0; p < z.p; ++p) {
    float* const to = y + p * z.q;
    for (Index q = 0; q < z.q && !accumulate; ++q) to[q] = start;
    for (Index r = 0; r < z.r; ++r) {
      const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
      if (h < 0 || h >= z.h) continue;
      for (Index s = 0; s < z.s; ++s) {
        const Index left = s * z.dilation_w - z.pad_left;  // the column that q = 0 reads
        const Index begin = left >= 0 ? 0 : ceil_div(-left, z.stride_w);
        const Index end = left >= z.w ? 0 : least(z.q, (z.w - 1 - left) / z.stride_w + 1);
        const float tap = w[r * z.s + s];
        const float* const from = x + h * z.w + left;
        if (z.stride_w == 1) {
          for (Index q = begin; q < end; ++q) to[q] += tap * from[q];
        } else {
          for (Index q = begin; q < end; ++q) to[q] += tap * from[q * z.stride_w];
        }
      }
    }
  }
}

// Strides 1 or 2 in both directions; two steps at once only without dilation.
bool unrolled_fits(const DepthwiseMap& z) {
  if (z.r != z.s || z.stride_h != z.stride_w) return false;
  return z.stride_h == 1 || (z.stride_h == 2 && z.dilation_h == 1 && z.dilation_w == 1);
}

void forward(const DepthwiseMap& z, const float* x, const float* w, float start, bool accumulate,
             float* y) {
  const Index kind = unrolled_fits(z) ? z.r * 10 + z.stride_h : 0;
  switch (kind) {
    case 31:
      return forward_unrolled<3, 3, 1>(z, x, w, start, accumulate, y);
    case 32:
      return forward_unrolled<3, 3, 2>(z, x, w, start, accumulate, y);
    case 51:
      return forward_unrolled<5, 5, 1>(z, x, w, start, accumulate, y);
    case 52:
      return forward_unrolled<5, 5, 2>(z, x, w, start, accumulate, y);
    case 71:
      return forward_unrolled<7, 7, 1>(z, x, w, start, accumulate, y);
    case 72:
      return forward_unrolled<7, 7, 2>(z, x, w, start, accumulate, y);
    default:
      return forward_plain(z, x, w, start, accumulate, y);
  }
}

// ---- backward_data -----------------------------------------------------------------------------

// Stride 2. With h + pad_top = 2 j + a and r = 2 t + a, row h reads row p = j - t: rows of the two
// parities a are two convolutions of stride 1 over the same rows of dy; columns likewise with i, b,
// u. So a vector of dy is multiplied by up to four taps, and the two column parities are woven
// together when they are stored. Here: rows of j in [j, j + Rows), all columns.
template <int R, int S, int Rows>
void backward_rows(const DepthwiseMap& z, const float* dy, const float* w, bool accumulate, Index j,
                   float* dx) {
  constexpr int kDown = (R + 1) / 2;
  constexpr int kRight = (S + 1) / 2;
  const Index first = z.pad_left / 2;
  const Index vectors = (z.pad_left + z.w - 1) / 2 - first + 1;
  for_strips(
      vectors, kRight - 1 - first, z.q - first,
      false, [&](auto strip, Index begin, Index end) __attribute__((always_inline)) {
        using Kind = decltype(strip);
        using L = typename Kind::L;
        typename L::V taps[R * S];
#pragma GCC unroll 64
        for (int i = 0; i < R * S; ++i) taps[i] = L::set(w[i]);
        for (Index i = first + begin; i < first + end; i += L::kCount) {
          typename L::Mask lanes[kRight];
#pragma GCC unroll 8
          for (int u = 0; u < kRight; ++u) lanes[u] = lanes_inside<L>(i - u, z.q);
          typename L::V sums[Rows][2][2];  // [Rows, a, b, kCount]
#pragma GCC unroll 8
          for (int k = 0; k < Rows * 4; ++k) sums[k / 4][k / 2 % 2][k % 2] = L::zero();
#pragma GCC unroll 16
          for (int k = 0; k < Rows + kDown - 1; ++k) {
            const Index p = j + k - (kDown - 1);
            if (p < 0 || p >= z.p) continue;
#pragma GCC unroll 8
            for (int u = 0; u < kRight; ++u) {
              const float* const from = dy + p * z.q + i - u;
              const typename L::V value = Kind::kMasked ? L::load(from, lanes[u]) : L::load(from);
#pragma GCC unroll 8
              for (int jj = 0; jj < Rows; ++jj) {
                const int t = jj + kDown - 1 - k;
                if (t < 0 || t >= kDown) continue;
#pragma GCC unroll 4
                for (int ab = 0; ab < 4; ++ab) {
                  const int r = 2 * t + ab / 2;
                  const int s = 2 * u + ab % 2;
                  typename L::V& sum = sums[jj][ab / 2][ab % 2];
                  if (r < R && s < S) sum = L::fma(taps[r * S + s], value, sum);
                }
              }
            }
          }
          const Index left = 2 * i - z.pad_left;
          const auto low_lanes = lanes_inside<L>(left, z.w);
          const auto high_lanes = lanes_inside<L>(left + L::kCount, z.w);
#pragma GCC unroll 8
          for (int k = 0; k < Rows * 2; ++k) {
            const Index h = 2 * (j + k / 2) + k % 2 - z.pad_top;
            if (h < 0 || h >= z.h) continue;
            float* const to = dx + h * z.w + left;
            const auto& pair = sums[k / 2][k % 2];
            typename L::V low = L::weave_low(pair[0], pair[1]);
            typename L::V high = L::weave_high(pair[0], pair[1]);
            if (accumulate) {
              low = L::fma(L::set(1.0f), L::load(to, low_lanes), low);
              high = L::fma(L::set(1.0f), L::load(to + L::kCount, high_lanes), high);
            }
            if (left >= 0 && left + 2 * L::kCount <= z.w) {
              L::store(to, low);
              L::store(to + L::kCount, high);
            } else {
              L::store(to, low, low_lanes);
              L::store(to + L::kCount, high, high_lanes);
            }
          }
        }
      });
}

template <int R, int S>
void backward_unrolled(const DepthwiseMap& z, const float* dy, const float* w, bool accumulate,
                       float* dx) {
  Index j = z.pad_top / 2;
  const Index end = (z.pad_top + z.h - 1) / 2 + 1;
  constexpr int kRows = kRegisters == 32 ? 4 : 2;
  for (; j + kRows <= end; j += kRows) backward_rows<R, S, kRows>(z, dy, w, accumulate, j, dx);
  for (; j < end; ++j) backward_rows<R, S, 1>(z, dy, w, accumulate, j, dx);
}

void backward_plain(const DepthwiseMap& z, const float* dy, const float* w, bool accumulate,
                    float* dx) {
  for (Index i = 0; i < z.h * z.w && !accumulate; ++i) dx[i] = 0.0f;
  for (Index p = 0; p < z.p; ++p) {
    for (Index r = 0; r < z.r; ++r) {
      const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
      if (h < 0 || h >= z.h) continue;
      for (Index s = 0; s < z.s; ++s) {
        const Index left = s * z.dilation_w - z.pad_left;
        const Index begin = left >= 0 ? 0 : ceil_div(-left, z.stride_w);
        const Index end = left >= z.w ? 0 : least(z.q, (z.w - 1 - left) / z.stride_w + 1);
        const float tap = w[r * z.s + s];
        const float* const from = dy + p * z.q;
        float* const to = dx + h * z.w + left;
        for (Index q = begin; q < end; ++q) to[q * z.stride_w] += tap * from[q];
      }
    }
  }
}

void backward_data(const DepthwiseMap& z, const float* dy, const float* w, bool accumulate,
                   float* dx) {
  constexpr Index kMostTaps = 7 * 7;
  if (z.stride_h == 1 && z.stride_w == 1) {
    // dx is a convolution of dy with the kernel turned by 180 degrees.
    DepthwiseMap back = z;
    back.h = z.p;
    back.w = z.q;
    back.p = z.h;
    back.q = z.w;
    back.pad_top = (z.r - 1) * z.dilation_h - z.pad_top;
    back.pad_left = (z.s - 1) * z.dilation_w - z.pad_left;
    if (z.r * z.s <= kMostTaps) {
      float turned[kMostTaps];
      for (Index i = 0; i < z.r * z.s; ++i) turned[i] = w[z.r * z.s - 1 - i];
      return forward(back, dy, turned, 0.0f, accumulate, dx);
    }
  }
  const bool halved = z.stride_h == 2 && unrolled_fits(z);
  if (halved && z.r == 3) return backward_unrolled<3, 3>(z, dy, w, accumulate, dx);
  if (halved && z.r == 5) return backward_unrolled<5, 5>(z, dy, w, accumulate, dx);
  if (halved && z.r == 7) return backward_unrolled<7, 7>(z, dy, w, accumulate, dx);
  backward_plain(z, dy, w, accumulate, dx);
}

// ---- backward_weight ---------------------------------------------------------------------------

// Sums in vector lanes, kept from plane to plane and added up across the lanes at the very end.
template <int R, int S>
struct TapSums {
  typename Wide::V wide[R * S];
  typename Narrow::V narrow[R * S];
  CONVSCOPE_INLINE typename Wide::V* of(Wide) { return wide; }
#if defined(CONVSCOPE_ISA_IS_AVX512)
  CONVSCOPE_INLINE typename Narrow::V* of(Narrow) { return narrow; }
#endif
};

// Kernel rows [r, r + Taps) of one plane's gradient from rows [p, p + Rows) of dy, one vector: Taps x
// S sums and Rows vectors of dy in registers; each row of x is loaded once for all of them.
template <class Kind, int S, int Stride, int Taps, int Rows>
CONVSCOPE_INLINE void weight_rows(const DepthwiseMap& z, const float* x, const float* dy, Index r,
                                  Index p, const Borders<Kind, S, Stride>& borders,
                                  typename Kind::L::Mask here,
                                  typename Kind::L::V (&sums)[Taps * S]) {
  using L = typename Kind::L;
  typename L::V value[Rows];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    const float* const from = dy + (p + i) * z.q;
    value[i] = Kind::kMasked ? L::load(from, here) : L::load(from);
  }
#pragma GCC unroll 16
  for (int j = 0; j < (Rows - 1) * Stride + Taps; ++j) {
    const Index h = p * Stride - z.pad_top + (r + j) * z.dilation_h;
    if (h < 0 || h >= z.h) continue;
    typename L::V row[S];
    load_taps<Kind, S, Stride>(row, x + h * z.w, z.dilation_w, borders);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const int down = j - i * Stride;
      if (down < 0 || down >= Taps) continue;
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) {
        sums[down * S + s] = L::fma(value[i], row[s], sums[down * S + s]);
      }
    }
  }
}

template <int R, int S, int Stride, int Taps, int Rows>
void weight_plane(const DepthwiseMap& z, const float* x, const float* dy, Index r,
                  TapSums<R, S>& kept) {
  const Index band = band_rows(z.p, z.q);
  for_strips<kSameTaps<S, Stride>>(
      z.q, inside_begin(z), inside_end(z),
      same_columns(z), [&](auto strip, Index begin, Index end) __attribute__((always_inline)) {
        using Kind = decltype(strip);
        using L = typename Kind::L;
        typename L::V* const to = kept.of(L{}) + r * S;
        typename L::V sums[Taps * S];
#pragma GCC unroll 64
        for (int i = 0; i < Taps * S; ++i) sums[i] = to[i];
        for (Index first = 0; first < z.p; first += band) {
          const Index last = least(first + band, z.p);
          for (Index q = begin; q < end; q += L::kCount) {
            const Index count = least(L::kCount, z.q - q);
            const Index left = q * Stride - z.pad_left;
            const auto here = lanes_inside<L>(0, count);
            const Borders<Kind, S, Stride> borders(left, z.w, z.dilation_w, count);
            Index p = first;
            if (z.dilation_h == 1) {
              for (; p + Rows <= last; p += Rows) {
                weight_rows<Kind, S, Stride, Taps, Rows>(z, x + left, dy + q, r, p, borders, here,
                                                         sums);
              }
            }
            for (; p < last; ++p) {
              weight_rows<Kind, S, Stride, Taps, 1>(z, x + left, dy + q, r, p, borders, here, sums);
            }
          }
        }
#pragma GCC unroll 64
        for (int i = 0; i < Taps * S; ++i) to[i] = sums[i];
      });
}

template <int R, int S, int Stride>
void weight_unrolled(const DepthwiseMap& z, const float* x, Index x_step, const float* dy,
                     Index dy_step, Index planes, float* sums) {
  // Kernel rows at a time, and rows of dy with them: together they fill the registers.
  constexpr int kFit = (kRegisters - 4) / S;
  constexpr int kTaps = kFit < R ? kFit : R;
  constexpr int kRest = R % kTaps;
  constexpr int kFree = kRegisters - kTaps * S - 2;
  constexpr int kRows = kFree < 4 ? kFree : 4;
  TapSums<R, S> kept;
#pragma GCC unroll 64
  for (int i = 0; i < R * S; ++i) {
    kept.wide[i] = Wide::zero();
    kept.narrow[i] = Narrow::zero();
  }
  for (Index plane = 0; plane < planes; ++plane, x += x_step, dy += dy_step) {
    for (Index r = 0; r + kTaps <= R; r += kTaps) {
      weight_plane<R, S, Stride, kTaps, kRows>(z, x, dy, r, kept);
    }
    if constexpr (kRest > 0) {
      weight_plane<R, S, Stride, kRest, kRows>(z, x, dy, R - kRest, kept);
    }
  }
  for (int i = 0; i < R * S; ++i) sums[i] += Wide::sum(kept.wide[i]) + Narrow::sum(kept.narrow[i]);
}

void weight_plain(const DepthwiseMap& z, const float* x, Index x_step, const float* dy,
                  Index dy_step, Index planes, float* sums) {
  for (Index r = 0; r < z.r; ++r) {
    for (Index s = 0; s < z.s; ++s) {
      const Index left = s * z.dilation_w - z.pad_left;
      const Index begin = left >= 0 ? 0 : ceil_div(-left, z.stride_w);
      const Index end = left >= z.w ? 0 : least(z.q, (z.w - 1 - left) / z.stride_w + 1);
      for (Index plane = 0; plane < planes; ++plane) {
        float of_plane = 0.0f;
        for (Index p = 0; p < z.p; ++p) {
          const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
          if (h < 0 || h >= z.h) continue;
          const float* const from = x + plane * x_step + h * z.w + left;
          const float* const value = dy + plane * dy_step + p * z.q;
          Index q = begin;
          if (z.stride_w == 1) {
            Vec lanes = zero();
            for (; q + kLanes <= end; q += kLanes)
              lanes = fma(load(from + q), load(value + q), lanes);
            of_plane += sum(lanes);
          }
          for (; q < end; ++q) of_plane += from[q * z.stride_w] * value[q];
        }
        sums[r * z.s + s] += of_plane;
      }
    }
  }
}

void backward_weight(const DepthwiseMap& z, const float* x, Index x_step, const float* dy,
                     Index dy_step, Index planes, float* sums) {
  const Index kind = unrolled_fits(z) ? z.r * 10 + z.stride_h : 0;
  switch (kind) {
    case 31:
      return weight_unrolled<3, 3, 1>(z, x, x_step, dy, dy_step, planes, sums);
    case 32:
      return weight_unrolled<3, 3, 2>(z, x, x_step, dy, dy_step, planes, sums);
    case 51:
      return weight_unrolled<5, 5, 1>(z, x, x_step, dy, dy_step, planes, sums);
    case 52:
      return weight_unrolled<5, 5, 2>(z, x, x_step, dy, dy_step, planes, sums);
    case 71:
      return weight_unrolled<7, 7, 1>(z, x, x_step, dy, dy_step, planes, sums);
    case 72:
      return weight_unrolled<7, 7, 2>(z, x, x_step, dy, dy_step, planes, sums);
    default:
      return weight_plain(z, x, x_step, dy, dy_step, planes, sums);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(depthwise_kernels,
                       (DepthwiseKernels{.forward = CONVSCOPE_ISA::forward,
                                         .backward_data = CONVSCOPE_ISA::backward_data,
                                         .backward_weight = CONVSCOPE_ISA::backward_weight}))
