// SPDX-License-Identifier: Apache-2.0
// depthwise_backward_simd.cpp: the gradients of planes of a depthwise convolution, with
// neighbouring pixels of a row in the vector lanes.
//
// Loops are unrolled for kernels of 3x3, 5x5 and 7x7. Other kernels have plain loops.
// Read next  depthwise_forward_simd.cpp (read it first); depthwise_cpu.cpp, the algorithm
#include "layers/conv2d/depthwise/cpu/depthwise_planes.h"
#include "layers/conv2d/depthwise/cpu/depthwise_strips.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// ---- backward_data, stride 2 -------------------------------------------------------------------

// Computes rows [j, j + Rows) of one vector of columns that starts at column i, for stride 2. The
// rows of dx and the kernel rows are split by their parity a:
//   h + pad_top = 2 j + a,  r = 2 t + a:  row h of dx reads row p = j - t of dy
// So the rows with a = 0 and the rows with a = 1 are two convolutions of stride 1 over the same
// rows of dy. Columns are split in the same way; i, b and u take the places of j, a and t. Each
// vector of dy is multiplied by up to four taps. The two column parities are interleaved when they
// are stored.
template <class Kind, int R, int S, int Rows>
CONVSCOPE_INLINE void backward_rows(const DepthwiseMap& z, const float* dy,
                                    const typename Kind::V (&taps)[R * S],
                                    const typename Kind::L::Mask (&lanes)[(S + 1) / 2],
                                    const PairMask<typename Kind::L>& here, bool accumulate,
                                    Index i, Index j, float* dx) {
  using L = typename Kind::L;
  constexpr int kDown = (R + 1) / 2;
  constexpr int kRight = (S + 1) / 2;
  typename L::V sums[Rows][2][2];  // [Rows, a, b, kCount]
#pragma GCC unroll 16
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
#pragma GCC unroll 8
  for (int k = 0; k < Rows * 2; ++k) {
    const Index h = 2 * (j + k / 2) + k % 2 - z.pad_top;
    if (h < 0 || h >= z.h) continue;
    const auto& pair = sums[k / 2][k % 2];
    float* const to = dx + h * z.w + 2 * i - z.pad_left;
    store_woven(to, pair[0], pair[1], here, accumulate);
  }
}

template <int R, int S>
void backward_planes(const DepthwiseMap& z, const float* dy, const float* w, bool accumulate,
                     Index planes, float* dx) {
  constexpr int kRight = (S + 1) / 2;
  constexpr int kRows = kRegisters == 32 ? 4 : 2;
  const Index first = z.pad_left / 2;
  const Index vectors = (z.pad_left + z.w - 1) / 2 - first + 1;
  const Index j_end = (z.pad_top + z.h - 1) / 2 + 1;
  const auto body = [&](auto strip, Index begin, Index end) __attribute__((always_inline)) {
    using Kind = decltype(strip);
    using L = typename Kind::L;
    for (Index i = first + begin; i < first + end; i += L::kCount) {
      typename L::Mask lanes[kRight];
#pragma GCC unroll 8
      for (int u = 0; u < kRight; ++u) lanes[u] = lanes_inside<L>(i - u, z.q);
      const PairMask<L> here(2 * i - z.pad_left, z.w);
      for (Index plane = 0; plane < planes; ++plane) {
        typename L::V taps[R * S];
#pragma GCC unroll 64
        for (int k = 0; k < R * S; ++k) taps[k] = L::set(w[plane * R * S + k]);
        const float* const from = dy + plane * z.p * z.q;
        float* const to = dx + plane * z.h * z.w;
        Index j = z.pad_top / 2;
        for (; j + kRows <= j_end; j += kRows) {
          if (i == first && z.h * z.w >= kFarPlane) {
            ask_for<false>(from + j * z.q + kAhead, kRows * z.q);
            ask_for<true>(to + 2 * j * z.w + kAhead, 2 * kRows * z.w);
          }
          backward_rows<Kind, R, S, kRows>(z, from, taps, lanes, here, accumulate, i, j, to);
        }
        for (; j < j_end; ++j) {
          backward_rows<Kind, R, S, 1>(z, from, taps, lanes, here, accumulate, i, j, to);
        }
      }
    }
  };
  cut_loaded(vectors, kRight - 1 - first, z.q - first, body);
}

template <int R, int S>
void backward_unrolled(const DepthwiseMap& z, const float* dy, const float* w, bool accumulate,
                       Index planes, float* dx) {
  const bool narrow = z.pad_left + z.w <= 2 * Wide::kCount;
  if (narrow) return backward_planes<R, S>(z, dy, w, accumulate, planes, dx);
  for (Index plane = 0; plane < planes; ++plane) {
    backward_planes<R, S>(z, dy + plane * z.p * z.q, w + plane * R * S, accumulate, 1,
                          dx + plane * z.h * z.w);
  }
}

void plane_plain(const DepthwiseMap& z, const float* dy, const float* w, bool accumulate,
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
                   Index planes, float* dx) {
  const bool halved = z.stride_h == 2 && unrolled_fits(z);
  if (halved && z.r == 3) return backward_unrolled<3, 3>(z, dy, w, accumulate, planes, dx);
  if (halved && z.r == 5) return backward_unrolled<5, 5>(z, dy, w, accumulate, planes, dx);
  if (halved && z.r == 7) return backward_unrolled<7, 7>(z, dy, w, accumulate, planes, dx);
  for (Index plane = 0; plane < planes; ++plane) {
    plane_plain(z, dy + plane * z.p * z.q, w + plane * z.r * z.s, accumulate,
                dx + plane * z.h * z.w);
  }
}

// ---- backward_weight ---------------------------------------------------------------------------

// The accumulators of dw in vector lanes. They collect all planes of a slice, and their lanes are
// added up at the end. Sums are in chains of about kSumChain vectors (framework/simd/sum_chain.h).
template <int R, int S>
struct TapSums {
  typename Wide::V wide[R * S];
  typename Narrow::V narrow[R * S];
  template <class L>
  CONVSCOPE_INLINE typename L::V* of(L) {
    if constexpr (L::kCount == Wide::kCount) return wide;
    if constexpr (L::kCount != Wide::kCount) return narrow;
  }
};

// Adds the gradient of kernel rows [r, r + Taps) from rows [p, p + Rows) of dy, for one vector
// strip of one plane. Registers hold Taps x S accumulators and Rows vectors of dy. Each row of x is
// loaded once for all taps.
template <class Kind, int S, int Stride, int Taps, int Rows>
CONVSCOPE_INLINE void weight_rows(const DepthwiseMap& z, const float* x, const float* dy, Index r,
                                  Index p, const Borders<Kind, S, Stride>& borders,
                                  const typename Kind::L::Mask (&here)[Kind::kVectors],
                                  typename Kind::V (&sums)[Taps * S]) {
  using L = typename Kind::L;
  constexpr int N = Kind::kVectors;
  typename Kind::V value[Rows][N];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < N; ++v) {
      const float* const from = dy + (p + i) * z.q + v * L::kCount;
      value[i][v] = Kind::kMasked ? L::load(from, here[v]) : L::load(from);
    }
  }
#pragma GCC unroll 32
  for (int j = 0; j < (Rows - 1) * Stride + Taps; ++j) {
    const Index h = p * Stride - z.pad_top + (r + j) * z.dilation_h;
    if (h < 0 || h >= z.h) continue;
    typename Kind::V row[N][S];
    load_taps<Kind, S, Stride>(row, x + h * z.w, z.dilation_w, borders);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const int down = j - i * Stride;
      if (down < 0 || down >= Taps) continue;
#pragma GCC unroll 2
      for (int v = 0; v < N; ++v) {
#pragma GCC unroll 8
        for (int s = 0; s < S; ++s) {
          sums[down * S + s] = L::fma(value[i][v], row[v][s], sums[down * S + s]);
        }
      }
    }
  }
}

// Returns how many rows of a wide plane one strip of columns reads before the next strip starts.
CONVSCOPE_INLINE Index band_rows(Index rows, Index columns) {
  constexpr Index kWide = 4 * Wide::kCount;
  return columns < kWide ? rows : 28;
}

template <int R, int S, int Stride, int Taps, int Rows>
void weight_planes(const DepthwiseMap& z, const float* x, Index x_step, const float* dy,
                   Index dy_step, Index planes, Index r, TapSums<R, S>& kept) {
  const Index band = band_rows(z.p, z.q);
  const auto body = [&](auto strip, Index begin, Index end) __attribute__((always_inline)) {
    using Kind = decltype(strip);
    using L = typename Kind::L;
    typename L::V* const to = kept.of(L{}) + r * S;
    typename L::V sums[Taps * S];
#pragma GCC unroll 64
    for (int i = 0; i < Taps * S; ++i) sums[i] = L::zero();
    const Index strips = ceil_div(end - begin, Index{Kind::kPixels});
    Index vectors = 0;  // in this chain
    for (Index plane = 0; plane < planes; ++plane) {
      const float* const from = x + plane * x_step;
      const float* const value = dy + plane * dy_step;
      for (Index first = 0; first < z.p; first += band) {
        const Index last = least(first + band, z.p);
        for (Index q = begin; q < end; q += Kind::kPixels) {
          const Index left = q * Stride - z.pad_left;
          const Borders<Kind, S, Stride> borders(left, z.w, z.dilation_w, z.q - q);
          typename L::Mask here[Kind::kVectors];
#pragma GCC unroll 2
          for (int v = 0; v < Kind::kVectors; ++v) {
            here[v] = lanes_inside<L>(0, z.q - q - v * L::kCount);
          }
          Index p = first;
          if (z.dilation_h == 1) {
            for (; p + Rows <= last; p += Rows) {
              if (q == 0 && r == 0 && z.h * z.w >= 128) {  // prefetches the same rows of the next
                                                           // plane
                ask_for<false>(from + x_step + p * Stride * z.w, Rows * Stride * z.w);
                ask_for<false>(value + dy_step + p * z.q, Rows * z.q);
              }
              weight_rows<Kind, S, Stride, Taps, Rows>(z, from + left, value + q, r, p, borders,
                                                       here, sums);
            }
          }
          for (; p < last; ++p) {
            weight_rows<Kind, S, Stride, Taps, 1>(z, from + left, value + q, r, p, borders, here,
                                                  sums);
          }
        }
        vectors += strips * (last - first);
        if (vectors < kSumChain) continue;
#pragma GCC unroll 64
        for (int i = 0; i < Taps * S; ++i) {
          to[i] = L::add(to[i], sums[i]);
          sums[i] = L::zero();
        }
        vectors = 0;
      }
    }
#pragma GCC unroll 64
    for (int i = 0; i < Taps * S; ++i) to[i] = L::add(to[i], sums[i]);
  };
  for_strips<S, Stride>(z, body);
}

template <int R, int S, int Stride>
void weight_unrolled(const DepthwiseMap& z, const float* x, Index x_step, const float* dy,
                     Index dy_step, Index planes, float* sums) {
  // kTaps is the number of kernel rows whose accumulators fit into the registers. kRows is the
  // number of rows of dy that fit into the registers that remain.
  constexpr int kFit = (kRegisters - 4) / S;
  constexpr int kTaps = kFit < R ? kFit : R;
  constexpr int kRest = R % kTaps;
  constexpr int kFree = kRegisters - kTaps * S - 2;
  constexpr int kRows = kFree < kRowsAtOnce<S> ? kFree : kRowsAtOnce<S>;
  TapSums<R, S> kept;
#pragma GCC unroll 64
  for (int i = 0; i < R * S; ++i) {
    kept.wide[i] = Wide::zero();
    kept.narrow[i] = Narrow::zero();
  }
  const Index at_once = one_strip<S, Stride>(z) ? planes : 1;
  for (Index plane = 0; plane < planes; plane += at_once, x += x_step, dy += dy_step) {
    for (Index r = 0; r + kTaps <= R; r += kTaps) {
      weight_planes<R, S, Stride, kTaps, kRows>(z, x, x_step, dy, dy_step, at_once, r, kept);
    }
    if constexpr (kRest > 0) {
      weight_planes<R, S, Stride, kRest, kRows>(z, x, x_step, dy, dy_step, at_once, R - kRest,
                                                kept);
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
        float plane_sum = 0.0f;  // each row is a separate chain
        for (Index p = 0; p < z.p; ++p) {
          const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
          if (h < 0 || h >= z.h) continue;
          const float* const from = x + plane * x_step + h * z.w + left;
          const float* const value = dy + plane * dy_step + p * z.q;
          Index q = begin;
          float row_sum = 0.0f;
          if (z.stride_w == 1) {
            Vec lanes = zero();
            for (; q + kLanes <= end; q += kLanes)
              lanes = fma(load(from + q), load(value + q), lanes);
            row_sum = sum(lanes);
          }
          for (; q < end; ++q) row_sum += from[q * z.stride_w] * value[q];
          plane_sum += row_sum;
        }
        sums[r * z.s + s] += plane_sum;
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

CONVSCOPE_SIMD_KERNELS(depthwise_backward,
                       (DepthwiseBackward{.data = CONVSCOPE_ISA::backward_data,
                                          .weight = CONVSCOPE_ISA::backward_weight}))
