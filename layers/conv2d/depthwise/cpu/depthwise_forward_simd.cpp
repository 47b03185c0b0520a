// SPDX-License-Identifier: Apache-2.0
// depthwise_forward_simd.cpp: forward of planes of a depthwise convolution, with neighbouring
// pixels of a row in the vector lanes. depthwise_cpu.cpp calls these functions; depthwise_strips.h
// splits rows into vectors.
//
// Kernels of 3x3, 5x5 and 7x7 have unrolled loops over taps, so that accumulators stay in
// registers. Plain loops for any other problem are at the end of the file.
// Read next  depthwise_strips.h; depthwise_backward_simd.cpp
#include "layers/conv2d/depthwise/cpu/depthwise_planes.h"
#include "layers/conv2d/depthwise/cpu/depthwise_strips.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// Returns how many rows of a wide plane one vector strip processes before the next strip starts. A
// narrow plane fits into L1 and is processed whole.
CONVSCOPE_INLINE Index band_rows(const DepthwiseMap& z) {
  constexpr Index kWide = 4 * Wide::kCount;
  return z.q < kWide ? z.p : 28;
}

// Computes rows p, p + step, ... of y: at most Rows rows, and only those below z.p. Each row of x
// is loaded once and multiplied into all accumulators that use it.
template <class Kind, int R, int S, int Stride, int Rows>
CONVSCOPE_INLINE void forward_rows(const DepthwiseMap& z, const float* x,
                                   const typename Kind::V (&taps)[R * S],
                                   const Borders<Kind, S, Stride>& borders,
                                   const typename Kind::L::Mask (&here)[Kind::kVectors], bool full,
                                   float start, bool accumulate, Index p, float* y) {
  using L = typename Kind::L;
  constexpr int N = Kind::kVectors;
  const Index step = z.dilation_h;
  typename Kind::V sums[Rows][N];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < N; ++v) sums[i][v] = L::set(start);
    if (accumulate && p + i * step < z.p) {
#pragma GCC unroll 2
      for (int v = 0; v < N; ++v) {
        sums[i][v] = L::load(y + (p + i * step) * z.q + v * L::kCount, here[v]);
      }
    }
  }
#pragma GCC unroll 32
  for (int j = 0; j < (Rows - 1) * Stride + R; ++j) {
    const Index h = p * Stride - z.pad_top + j * step;
    if (h < 0 || h >= z.h) continue;
    typename Kind::V row[N][S];
    load_taps<Kind, S, Stride>(row, x + h * z.w, z.dilation_w, borders);
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const int r = j - i * Stride;
        if (r < 0 || r >= R) continue;
#pragma GCC unroll 2
        for (int v = 0; v < N; ++v) sums[i][v] = L::fma(taps[r * S + s], row[v][s], sums[i][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    if (p + i * step >= z.p) break;
    float* const to = y + (p + i * step) * z.q;
#pragma GCC unroll 2
    for (int v = 0; v < N; ++v) {
      if (Kind::kMasked && (kMasksAreFree || !full)) {
        L::store(to + v * L::kCount, sums[i][v], here[v]);
      } else {
        L::store(to + v * L::kCount, sums[i][v]);
      }
    }
  }
}

// Computes rows [first, last) of each of `planes` planes.
template <int R, int S, int Stride>
void forward_band(const DepthwiseMap& z, const float* x, const float* w, const float* b,
                  bool accumulate, Index planes, Index first, Index last, float* y) {
  const auto body = [&](auto strip, Index begin, Index end) __attribute__((always_inline)) {
    using Kind = decltype(strip);
    using L = typename Kind::L;
    constexpr int kRows = kRowsAtOnce<S>;
    const bool far_planes = z.h * z.w >= kFarPlane;
    for (Index q = begin; q < end; q += Kind::kPixels) {
      const Index left = q * Stride - z.pad_left;
      const Borders<Kind, S, Stride> borders(left, z.w, z.dilation_w, Kind::kPixels);
      const bool full = q + Kind::kPixels <= z.q;
      typename L::Mask here[Kind::kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < Kind::kVectors; ++v) {
        here[v] = lanes_inside<L>(0, z.q - q - v * L::kCount);
      }
      for (Index plane = 0; plane < planes; ++plane) {
        typename Kind::V taps[R * S];
        const float* const kernel = w + plane * R * S;
#pragma GCC unroll 64
        for (int i = 0; i < R * S; ++i) taps[i] = L::set(kernel[z.rotated ? R * S - 1 - i : i]);
        const float start = b == nullptr ? 0.0f : b[plane];
        const auto rows = [&](auto height, Index p) __attribute__((always_inline)) {
          constexpr int kHeight = decltype(height)::kRows;
          if (q == 0 && far_planes) {  // the first strip prefetches all columns
            ask_for<false>(x + plane * z.h * z.w + p * Stride * z.w + kAhead,
                           kHeight * Stride * z.w);
            ask_for<true>(y + (plane * z.p + p) * z.q + kAhead, kHeight * z.q);
          }
          forward_rows<Kind, R, S, Stride, kHeight>(z, x + plane * z.h * z.w + left, taps, borders,
                                                    here, full, start, accumulate, p,
                                                    y + plane * z.p * z.q + q);
        };
        // With dilation, rows of y that are `dilation` rows apart share their loads.
        for (Index residue = 0; residue < z.dilation_h; ++residue) {
          Index p = first + residue;
          const Index reach = (kRows - 1) * z.dilation_h;
          for (; p + reach < last; p += kRows * z.dilation_h) rows(Height<kRows>{}, p);
          constexpr int kRest = (kRows + 1) / 2 - 1;  // 3 or 1
          for (; p < last; p += kRest * z.dilation_h) rows(Height<kRest>{}, p);
        }
      }
    }
  };
  for_strips<S, Stride>(z, body);
}

template <int R, int S, int Stride>
void forward_unrolled(const DepthwiseMap& z, const float* x, const float* w, const float* b,
                      bool accumulate, Index planes, float* y) {
  if (one_strip<S, Stride>(z)) {
    return forward_band<R, S, Stride>(z, x, w, b, accumulate, planes, 0, z.p, y);
  }
  const Index band = z.dilation_h == 1 ? band_rows(z) : z.p;
  for (Index plane = 0; plane < planes; ++plane) {
    for (Index first = 0; first < z.p; first += band) {
      forward_band<R, S, Stride>(z, x + plane * z.h * z.w, w + plane * R * S,
                                 b == nullptr ? nullptr : b + plane, accumulate, 1, first,
                                 least(first + band, z.p), y + plane * z.p * z.q);
    }
  }
}

// The plain loop for problems without an unrolled kernel. It adds one tap after another to a
// segment of a row, in chains of about kSumChain taps (framework/simd/sum_chain.h).
constexpr Index kPiece = 256;
void row_plain(const DepthwiseMap& z, const float* x, const float* w, Index p, Index first,
               Index end, float* sums) {
  float chain[kPiece];
  Index length = 0;  // of the chain
  for (Index r = 0; r < z.r; ++r) {
    if (length == 0) {
      for (Index q = first; q < end; ++q) chain[q - first] = 0.0f;
    }
    const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
    for (Index s = 0; s < z.s && h >= 0 && h < z.h; ++s) {
      const Index left = s * z.dilation_w - z.pad_left;  // the column that q = 0 reads
      const Index begin = left >= 0 ? first : most(first, ceil_div(-left, z.stride_w));
      const Index stop = left >= z.w ? 0 : least(end, (z.w - 1 - left) / z.stride_w + 1);
      const Index at = r * z.s + s;
      const float tap = w[z.rotated ? z.r * z.s - 1 - at : at];
      const float* const from = x + h * z.w + left;
      if (z.stride_w == 1) {
        for (Index q = begin; q < stop; ++q) chain[q - first] += tap * from[q];
      } else {
        for (Index q = begin; q < stop; ++q) chain[q - first] += tap * from[q * z.stride_w];
      }
    }
    length += z.s;
    if (length < kSumChain && r + 1 < z.r) continue;
    for (Index q = first; q < end; ++q) sums[q] += chain[q - first];
    length = 0;
  }
}

void plane_plain(const DepthwiseMap& z, const float* x, const float* w, float start,
                 bool accumulate, float* y) {
  for (Index p = 0; p < z.p; ++p) {
    float* const to = y + p * z.q;
    for (Index q = 0; q < z.q && !accumulate; ++q) to[q] = start;
    for (Index q = 0; q < z.q; q += kPiece) row_plain(z, x, w, p, q, least(q + kPiece, z.q), to);
  }
}

void forward_plain(const DepthwiseMap& z, const float* x, const float* w, const float* b,
                   bool accumulate, Index planes, float* y) {
  for (Index plane = 0; plane < planes; ++plane) {
    plane_plain(z, x + plane * z.h * z.w, w + plane * z.r * z.s, b == nullptr ? 0.0f : b[plane],
                accumulate, y + plane * z.p * z.q);
  }
}

// Unrolled loops for one lane would not be faster, and they compile slowly.
template <int Lanes>
void forward(const DepthwiseMap& z, const float* x, const float* w, const float* b, bool accumulate,
             Index planes, float* y) {
  if constexpr (Lanes == 1) return forward_plain(z, x, w, b, accumulate, planes, y);
  const Index kind = unrolled_fits(z) ? z.r * 10 + z.stride_h : 0;
  switch (kind) {
    case 31:
      return forward_unrolled<3, 3, 1>(z, x, w, b, accumulate, planes, y);
    case 32:
      return forward_unrolled<3, 3, 2>(z, x, w, b, accumulate, planes, y);
    case 51:
      return forward_unrolled<5, 5, 1>(z, x, w, b, accumulate, planes, y);
    case 52:
      return forward_unrolled<5, 5, 2>(z, x, w, b, accumulate, planes, y);
    case 71:
      return forward_unrolled<7, 7, 1>(z, x, w, b, accumulate, planes, y);
    case 72:
      return forward_unrolled<7, 7, 2>(z, x, w, b, accumulate, planes, y);
    default:
      return forward_plain(z, x, w, b, accumulate, planes, y);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(depthwise_forward,
                       (DepthwiseForward{.planes = CONVSCOPE_ISA::forward<CONVSCOPE_ISA::kLanes>}))
