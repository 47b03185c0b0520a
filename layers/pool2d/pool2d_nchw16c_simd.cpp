// SPDX-License-Identifier: Apache-2.0
// pool2d_nchw16c_simd.cpp: pooling on images [N,C/16,H,W,16]: 16 channels of a pixel at once.
//
// Method    forward: a window has 16 contiguous elements at each of its pixels, so all strides and
//           borders take the same time. The index of the largest pixel so far is kept as a float.
//           backward: each pixel of dx adds the windows that cover it, in the order of the windows,
//           and is written once. So nothing has to be cleared, and rows of dx are independent of
//           each other
// Numerics  the same bits as pool2d_cpu.cpp and pool2d_simd.cpp: the same sums in the same order,
//           and no FMA that merges a product and a sum. If a window has NaNs, the last NaN wins;
//           among equal numbers the first one wins
// Read next pool2d_cpu.cpp: planes, as plain loops
#include "layers/pool2d/pool2d_nchw16c_simd.h"

#include "framework/simd/simd.h"
#include "framework/simd/window_taps.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;
using std::uint8_t;

constexpr int kBlock = 16;

struct Span {
  int64_t begin, end;
};

// The positions of windows of fixed size along one axis.
struct WindowAxis {
  int64_t size, outputs, kernel, stride, pad;
  bool count_pad;

  int64_t start(int64_t o) const { return o * stride - pad; }
  Span inside(int64_t o) const {
    const int64_t first = start(o), last = first + kernel;
    return {first < 0 ? 0 : first, last > size ? size : last};
  }
  bool begins_by(int64_t o, int64_t i) const { return o * stride <= i + pad; }
  bool ends_by(int64_t o, int64_t i) const { return start(o) + kernel <= i; }
  // Tells whether windows are 2x2 at stride 2 and all whole. In this case pool2d_simd.cpp begins
  // its sum with the first number instead of adding it to 0, which makes a difference for -0.
  bool is_2x2(const WindowAxis& columns) const { return halves() && columns.halves(); }
  bool halves() const { return kernel == 2 && stride == 2 && pad == 0 && 2 * outputs <= size; }
  // Returns the number of pixels by which the sum over window o is divided.
  int64_t count(int64_t o) const {
    const int64_t last = start(o) + kernel;
    if (count_pad) return (last > size + pad ? size + pad : last) - start(o);
    const Span span = inside(o);
    return span.end - span.begin;
  }
};

// Window o covers floor(o size / outputs) to ceil((o + 1) size / outputs).
struct AdaptiveAxis {
  int64_t size, outputs;

  Span inside(int64_t o) const {
    return {o * size / outputs, ((o + 1) * size + outputs - 1) / outputs};
  }
  bool begins_by(int64_t o, int64_t i) const { return o * size < (i + 1) * outputs; }
  bool ends_by(int64_t o, int64_t i) const { return (o + 1) * size <= i * outputs; }
  bool is_2x2(const AdaptiveAxis&) const { return false; }
  int64_t count(int64_t o) const {
    const Span span = inside(o);
    return span.end - span.begin;
  }
};

WindowAxis rows_of(const Nchw16cPool& v) {
  return {v.h, v.p, v.kernel_h, v.stride_h, v.pad_h, v.count_include_pad};
}
WindowAxis columns_of(const Nchw16cPool& v) {
  return {v.w, v.q, v.kernel_w, v.stride_w, v.pad_w, v.count_include_pad};
}

// Moves the span of windows from those that cover an earlier pixel to those that cover pixel i.
template <class Axis>
CONVSCOPE_INLINE void move_to(const Axis& axis, int64_t i, Span& windows) {
  while (windows.end < axis.outputs && axis.begins_by(windows.end, i)) ++windows.end;
  while (windows.begin < windows.end && axis.ends_by(windows.begin, i)) ++windows.begin;
}

// ---- the largest -------------------------------------------------------------------------------

struct MaxWindow {
  const float* from;  // its first pixel inside
  int64_t row;        // floats from row to row
  int rows, columns;  // inside
  int tap, width;     // tap of the first pixel inside the image; length of a row of x in elements
};

// Finds the largest elements of a window. kSize is the number of rows and columns of a whole
// window; 0: any window. Returns false if the window has a NaN: then y and taps are undefined.
template <bool kTaps, int kSize>
CONVSCOPE_INLINE bool largest(const MaxWindow& window, int lane, float* y, uint8_t* taps) {
  const int rows = kSize > 0 ? kSize : window.rows;
  const int columns = kSize > 0 ? kSize : window.columns;
  const float* from = window.from + lane;
  Vec best = load(from);
  Vec tap = kSize > 0 ? zero() : broadcast(static_cast<float>(window.tap));
  Mask nan = unordered(best, best);
#pragma GCC unroll 3
  for (int r = 0; r < rows; ++r, from += window.row) {
    Vec before = best;
#pragma GCC unroll 3
    for (int s = 0; s < columns; ++s) {
      const Vec value = load(from + s * kBlock);
      // One comparison checks two numbers.
      if (s % 2 == 1) nan = either(nan, unordered(before, value));
      if (s % 2 == 0 && s == columns - 1) nan = either(nan, unordered(value, value));
      before = value;
      if (kTaps) {
        const Mask wins = greater(value, best);
        best = choose(wins, best, value);
        const int number = kSize > 0 ? r * kSize + s : window.tap + r * window.width + s;
        tap = choose(wins, tap, broadcast(static_cast<float>(number)));
      } else {
        best = max(value, best);
      }
    }
  }
  store(y + lane, best);
  if (kTaps) store_bytes(taps + lane, tap, kLanes);
  return !any(nan);
}

// Handles NaN: the last one wins.
template <bool kTaps>
void largest_or_nan(const MaxWindow& window, int lane, float* y, uint8_t* taps) {
  const float* from = window.from + lane;
  Vec best = load(from);
  Vec tap = broadcast(static_cast<float>(window.tap));
  for (int r = 0; r < window.rows; ++r, from += window.row) {
    for (int s = 0; s < window.columns; ++s) {
      const Vec value = load(from + s * kBlock);
      const Mask wins = beats(value, best);
      best = choose(wins, best, value);
      const int number = window.tap + r * window.width + s;
      tap = choose(wins, tap, broadcast(static_cast<float>(number)));
    }
  }
  store(y + lane, best);
  if (kTaps) store_bytes(taps + lane, tap, kLanes);
}

template <bool kTaps, int kSize>
CONVSCOPE_INLINE void max_pixel(const MaxWindow& window, float* y, uint8_t* taps) {
#pragma GCC unroll 2
  for (int lane = 0; lane < kBlock; lane += kLanes) {
    if (!largest<kTaps, kSize>(window, lane, y, taps)) {
      largest_or_nan<kTaps>(window, lane, y, taps);
    }
  }
}

template <bool kTaps>
void max_rows(const Nchw16cPool& v, int64_t begin, int64_t end, const float* x, float* y,
              uint8_t* taps) {
  const WindowAxis rows = rows_of(v), columns = columns_of(v);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t p = row % v.p;
    const Span i = rows.inside(p);
    const float* const image = x + (row / v.p * v.h + i.begin) * v.w * kBlock;
    for (int64_t q = 0; q < v.q; ++q) {
      const Span j = columns.inside(q);
      const int64_t tap = (i.begin - rows.start(p)) * v.kernel_w + j.begin - columns.start(q);
      const MaxWindow window{.from = image + j.begin * kBlock,
                             .row = v.w * kBlock,
                             .rows = static_cast<int>(i.end - i.begin),
                             .columns = static_cast<int>(j.end - j.begin),
                             .tap = static_cast<int>(tap),
                             .width = static_cast<int>(v.kernel_w)};
      float* const to = y + (row * v.q + q) * kBlock;
      uint8_t* const tap_to = kTaps ? taps + (row * v.q + q) * kBlock : nullptr;
      const bool whole = window.rows == v.kernel_h && window.columns == v.kernel_w;
      if (whole && window.rows == 3 && window.columns == 3) {
        max_pixel<kTaps, 3>(window, to, tap_to);
      } else if (whole && window.rows == 2 && window.columns == 2) {
        max_pixel<kTaps, 2>(window, to, tap_to);
      } else {
        max_pixel<kTaps, 0>(window, to, tap_to);
      }
    }
  }
}

void max_forward(const Nchw16cPool& v, int64_t begin, int64_t end, const float* x, float* y,
                 uint8_t* taps) {
  taps == nullptr ? max_rows<false>(v, begin, end, x, y, taps)
                  : max_rows<true>(v, begin, end, x, y, taps);
}

// ---- sums of what the windows give to a pixel --------------------------------------------------

// The 16 channels of a pixel.
constexpr int kVectors = kBlock / kLanes;
struct Pixel {
  Vec v[kVectors];
};

// Calls give(window p, window q, place in y) for each window that covers a pixel of a row of dx, in
// the order of the windows. give() returns the share of the window's gradient for the pixel.
template <class Axis, class Give>
CONVSCOPE_INLINE void gather_rows(const Nchw16cPool& v, const Axis& rows, const Axis& columns,
                                  int64_t begin, int64_t end, float* dx, const Give& give) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t i = row % v.h, image = row / v.h * v.p;
    Span p_span{0, 0}, q_span{0, 0};
    move_to(rows, i, p_span);
    for (int64_t j = 0; j < v.w; ++j) {
      move_to(columns, j, q_span);
      Pixel total;
#pragma GCC unroll 16
      for (int k = 0; k < kVectors; ++k) total.v[k] = zero();
      const auto add = [&](int64_t p, int64_t q) __attribute__((always_inline)) {
        const Pixel got = give(p, q, i, j, ((image + p) * v.q + q) * kBlock);
#pragma GCC unroll 16
        for (int k = 0; k < kVectors; ++k) total.v[k] = total.v[k] + got.v[k];
      };
      for (int64_t p = p_span.begin; p < p_span.end; ++p) {
        for (int64_t q = q_span.begin; q < q_span.end; ++q) add(p, q);
      }
      float* const to = dx + (row * v.w + j) * kBlock;
#pragma GCC unroll 16
      for (int k = 0; k < kVectors; ++k) store(to + k * kLanes, total.v[k]);
    }
  }
}

// Does the same as gather_rows() where no windows overlap, so a share is assigned to its pixel.
template <class Give>
CONVSCOPE_INLINE void gather_2x2(const Nchw16cPool& v, int64_t begin, int64_t end, float* dx,
                                 const Give& give) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t i = row % v.h;
    const int64_t out = (row / v.h * v.p + i / 2) * v.q;
    const int64_t covered = i < 2 * v.p ? 2 * v.q : 0;
    float* to = dx + row * v.w * kBlock;
    for (int64_t j = 0; j < covered; ++j, to += kBlock) {
      const Pixel got = give(i / 2, j / 2, i, j, (out + j / 2) * kBlock);
#pragma GCC unroll 16
      for (int k = 0; k < kVectors; ++k) store(to + k * kLanes, got.v[k]);
    }
    for (int64_t j = covered * kBlock; j < v.w * kBlock; j += kLanes, to += kLanes) {
      store(to, zero());
    }
  }
}

void max_backward(const Nchw16cPool& v, int64_t begin, int64_t end, const float* dy,
                  const uint8_t* taps, float* dx) {
  const WindowAxis rows = rows_of(v), columns = columns_of(v);
  const auto give = [&](int64_t p, int64_t q, int64_t i, int64_t j, int64_t at)
      __attribute__((always_inline)) {
    const auto tap = static_cast<int>((i - rows.start(p)) * v.kernel_w + j - columns.start(q));
    Pixel got;
#pragma GCC unroll 16
    for (int k = 0; k < kVectors; ++k) {
      const int64_t from = at + k * kLanes;
      got.v[k] = keep(won(load_taps(taps + from), tap), load(dy + from));
    }
    return got;
  };
  if (rows.is_2x2(columns)) return gather_2x2(v, begin, end, dx, give);
  gather_rows(v, rows, columns, begin, end, dx, give);
}

// ---- means -------------------------------------------------------------------------------------

// Returns the number by which sums over `count` pixels are multiplied or divided; scaled() applies
// it.
CONVSCOPE_INLINE Vec scale_of(const WindowAxis&, int64_t count) {
  return broadcast(1.0f / static_cast<float>(count));
}
CONVSCOPE_INLINE Vec scaled(const WindowAxis&, Vec total, Vec scale) {
  return opaque(total * scale);  // product and sum are not fused
}
CONVSCOPE_INLINE Vec scale_of(const AdaptiveAxis&, int64_t count) {
  return broadcast(static_cast<float>(count));
}
CONVSCOPE_INLINE Vec scaled(const AdaptiveAxis&, Vec total, Vec scale) { return total / scale; }

template <class Axis>
CONVSCOPE_INLINE void mean_rows(const Nchw16cPool& v, const Axis& rows, const Axis& columns,
                                int64_t begin, int64_t end, const float* x, float* y) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t p = row % v.p;
    const Span i = rows.inside(p);
    const float* const image = x + row / v.p * v.h * v.w * kBlock;
    for (int64_t q = 0; q < v.q; ++q) {
      const Span j = columns.inside(q);
      const Vec scale = scale_of(rows, rows.count(p) * columns.count(q));
      float* const to = y + (row * v.q + q) * kBlock;
#pragma GCC unroll 2
      for (int lane = 0; lane < kBlock; lane += kLanes) {
        Vec total = zero();
        for (int64_t r = i.begin; r < i.end; ++r) {
          const float* const from = image + r * v.w * kBlock + lane;
          Vec sum = zero();
          for (int64_t s = j.begin; s < j.end; ++s) sum = sum + load(from + s * kBlock);
          total = total + sum;
        }
        store(to + lane, scaled(rows, total, scale));
      }
    }
  }
}

void mean_rows_2x2(const Nchw16cPool& v, int64_t begin, int64_t end, const float* x, float* y) {
  const Vec quarter = broadcast(0.25f);
  const int64_t below = v.w * kBlock;
  for (int64_t row = begin; row < end; ++row) {
    const float* from = x + (row / v.p * v.h + 2 * (row % v.p)) * v.w * kBlock;
    float* to = y + row * v.q * kBlock;
    for (int64_t q = 0; q < v.q; ++q, from += 2 * kBlock, to += kBlock) {
#pragma GCC unroll 2
      for (int lane = 0; lane < kBlock; lane += kLanes) {
        const float* const at = from + lane;
        const Vec upper = load(at) + load(at + kBlock);
        const Vec lower = load(at + below) + load(at + below + kBlock);
        store(to + lane, (upper + lower) * quarter);
      }
    }
  }
}

void avg_forward(const Nchw16cPool& v, int64_t begin, int64_t end, const float* x, float* y) {
  const WindowAxis rows = rows_of(v), columns = columns_of(v);
  if (rows.is_2x2(columns)) return mean_rows_2x2(v, begin, end, x, y);
  mean_rows(v, rows, columns, begin, end, x, y);
}

template <class Axis>
CONVSCOPE_INLINE void mean_backward(const Nchw16cPool& v, const Axis& rows, const Axis& columns,
                                    int64_t begin, int64_t end, const float* dy, float* dx) {
  Span window{-1, -1};  // the window that `scale` belongs to, often that of the previous pixel
  Vec scale = zero();
  const auto give = [&](int64_t p, int64_t q, int64_t, int64_t, int64_t at)
      __attribute__((always_inline)) {
    if (p != window.begin || q != window.end) {
      window = {p, q};
      scale = scale_of(rows, rows.count(p) * columns.count(q));
    }
    Pixel got;
#pragma GCC unroll 16
    for (int k = 0; k < kVectors; ++k) got.v[k] = scaled(rows, load(dy + at + k * kLanes), scale);
    return got;
  };
  if (rows.is_2x2(columns)) return gather_2x2(v, begin, end, dx, give);
  gather_rows(v, rows, columns, begin, end, dx, give);
}

void avg_backward(const Nchw16cPool& v, int64_t begin, int64_t end, const float* dy, float* dx) {
  mean_backward(v, rows_of(v), columns_of(v), begin, end, dy, dx);
}

void adaptive_forward(const Nchw16cPool& v, int64_t begin, int64_t end, const float* x, float* y) {
  mean_rows(v, AdaptiveAxis{v.h, v.p}, AdaptiveAxis{v.w, v.q}, begin, end, x, y);
}

void adaptive_backward(const Nchw16cPool& v, int64_t begin, int64_t end, const float* dy,
                       float* dx) {
  mean_backward(v, AdaptiveAxis{v.h, v.p}, AdaptiveAxis{v.w, v.q}, begin, end, dy, dx);
}

}  // namespace
constexpr Nchw16cPoolKernels kNchw16cPool{.max_forward = max_forward,
                                          .max_backward = max_backward,
                                          .avg_forward = avg_forward,
                                          .avg_backward = avg_backward,
                                          .adaptive_forward = adaptive_forward,
                                          .adaptive_backward = adaptive_backward};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(nchw16c_pool_kernels, convscope::CONVSCOPE_ISA::kNchw16cPool)
