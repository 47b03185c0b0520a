// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c_simd.cpp: rows of a depthwise convolution in NCHW16c, forward and
// backward_data. A vector holds the channels of one pixel, so no lanes are shifted and every load
// is a whole vector.
//
// Method     A strip is a few neighbouring pixels of a row, whose accumulators stay in registers.
//            For each row of the kernel the taps are loaded into registers, and each x is loaded
//            once and multiplied by every tap that reaches one of the strip's pixels. So P pixels
//            and a kernel row of S taps cost P S FMAs, P + S - 1 loads of x and S of taps: 0.47
//            loads for each FMA in a 3x3 kernel, 0.38 in 5x5 and 7x7, and a CPU can do one. The
//            number of kernel rows is not a constant, so rows outside the image are skipped. The
//            columns outside are compile-time constants for usual padding. Other rows of taps
//            (other widths or padding, strides above 2, most dilations) take plain loops, with x as
//            an operand in memory and 1 + 1/P loads for each FMA.
// Choices    P: accumulators, the taps of a row and one x fill 16 registers with at most 12 pixels,
//            or 32 registers with 14 pixels (two times 7, which divides the maps of ImageNet). The
//            strips of a row have nearly equal widths.
// GCC 12 keeps an array on the stack when a loop without unrolling indexes it, so every loop over
// accumulators has an unroll pragma.
// Read next  depthwise_nchw16c.cpp, the caller; depthwise_nchw16c_weight_simd.cpp
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c_strips.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kPlainPixels = 8;
constexpr int kMaxPixels = most_pixels(kRegisters == 32 ? 14 : kLanes > 1 ? 12 : kPlainPixels);

template <int Taps>
constexpr int kPixelsBeside =
    kRegisters - Taps - 1 < kMaxPixels ? kRegisters - Taps - 1 : kMaxPixels;

// The channels of a block that one vector holds.
struct Lanes {
  const float* in;
  const float* w;
  const float* residual;  // or null
  bool relu;
  float most;
  float* out;
  Vec start;
  bool first;  // of the block
};

CONVSCOPE_INLINE Lanes lanes_of(const DepthwiseBlock& block, int lane) {
  return {.in = block.in + lane,
          .w = block.w + lane,
          .residual = block.residual == nullptr ? nullptr : block.residual + lane,
          .relu = block.relu,
          .most = block.most,
          .out = block.out + lane,
          .start = block.start == nullptr ? zero() : load(block.start + lane),
          .first = lane == 0};
}

// Calls body(j, offset of pixel j) for the pixels of a strip. One address register serves three
// pixels.
template <int Pixels, class Body>
CONVSCOPE_INLINE void for_pixels(Index step, Body body) {
  Index at = 0;
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
    if (j > 0 && j % 3 == 0) at += 3 * step;
    body(j, at + j % 3 * step);
  }
}

// Applies the epilogue to neighbouring pixels, `Step` floats apart, and stores them to `out`.
template <int Pixels, class Step>
CONVSCOPE_INLINE void finish(const Lanes& lanes, Index at, Step step, Vec (&sums)[Pixels]) {
  if (lanes.residual != nullptr) {
    const float* const residual = lanes.residual + at;
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j] = sums[j] + load(residual + j * step());
  }
  if (lanes.relu) {
    const Vec most = broadcast(lanes.most);
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j] = bounded_relu(sums[j], most);
  }
  float* const out = lanes.out + at;
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) store(out + j * step(), sums[j]);
}

template <int Pixels>
CONVSCOPE_INLINE void store_sums(const DepthwisePhase& z, const Lanes& lanes, Index row,
                                 Index column, Vec (&sums)[Pixels]) {
  const Index at =
      ((z.h.first + row * z.h.step) * z.out_w + z.w.first + column * z.w.step) * kBlock;
  if (z.w.step == 1) {  // constant for the compiler: pixels are addresses of one register
    finish(
        lanes, at, [] { return Index{kBlock}; }, sums);
  } else {
    const Index step = z.w.step * kBlock;
    finish(
        lanes, at, [=] { return step; }, sums);
  }
}

// The rows of the kernel that are inside `in` for a row of `out`.
struct KernelRows {
  CONVSCOPE_INLINE KernelRows(const DepthwiseAxis& h, Index row)
      : begin(0), end(h.taps), at(h.at + row * h.pixel) {
    while (end > 0 && at + (end - 1) * h.reach >= h.in) --end;
    while (begin < end && at < 0) {
      at += h.reach;
      ++begin;
    }
  }
  Index begin, end;
  Index at;  // row of `in` for tap `begin`
};

// ---- any row of taps ---------------------------------------------------------------------------

// Adds one row of the kernel.
template <int Pixels>
CONVSCOPE_INLINE void add_plain_row(const DepthwiseAxis& w, const float* in, const float* taps,
                                    Index left, Vec (&sums)[Pixels]) {
  const Index step = w.pixel * kBlock;
  for (Index s = 0; s < w.taps; ++s, taps += w.tap_step * kBlock) {
    const Index at = left + s * w.reach;
    const bool whole = at >= 0 && at + (Pixels - 1) * w.pixel < w.in;
    const float* const from = in + at * kBlock;
    const Vec tap = load(taps);
    if (whole) {
      for_pixels<Pixels>(
          step, [&](int j, Index pixel) __attribute__((always_inline)) {
            sums[j] = fma(load(from + pixel), tap, sums[j]);
          });
      continue;
    }
    for_pixels<Pixels>(
        step, [&](int j, Index pixel) __attribute__((always_inline)) {
          const Index here = at + j * w.pixel;
          if (here >= 0 && here < w.in) sums[j] = fma(load(from + pixel), tap, sums[j]);
        });
  }
}

// Adds all taps. Sums of more than kSumChain taps are split into chains of whole kernel rows.
template <int Pixels>
void plain_strip(const DepthwisePhase& z, const Lanes& lanes, Index column, Index begin,
                 Index end) {
  const Index left = z.w.at + column * z.w.pixel;
  const Index most = z.w.taps >= kSumChain ? 1 : kSumChain / (z.w.taps > 0 ? z.w.taps : 1);
  const float* const w = lanes.w + (z.h.tap * z.w.kernel + z.w.tap) * kBlock;
  for (Index row = begin; row < end; ++row) {
    const KernelRows rows(z.h, row);
    Vec kept[Pixels];
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) kept[j] = lanes.start;
    for (Index first = rows.begin; first < rows.end; first += most) {
      const Index last = first + most < rows.end ? first + most : rows.end;
      Vec sums[Pixels];
#pragma GCC unroll 16
      for (int j = 0; j < Pixels; ++j) sums[j] = first == rows.begin ? kept[j] : zero();
      for (Index r = first; r < last; ++r) {
        add_plain_row<Pixels>(z.w,
                              lanes.in + (rows.at + (r - rows.begin) * z.h.reach) * z.w.in * kBlock,
                              w + r * z.h.tap_step * z.w.kernel * kBlock, left, sums);
      }
#pragma GCC unroll 16
      for (int j = 0; j < Pixels; ++j) {
        kept[j] = first == rows.begin ? sums[j] : kept[j] + sums[j];
      }
    }
    store_sums<Pixels>(z, lanes, row, column, kept);
  }
}

// ---- unrolled over the taps of a kernel row ----------------------------------------------------

// Adds one row of the kernel. Taps are Reach columns apart.
template <int Taps, int Step, int Reach, class Border, int Pixels>
CONVSCOPE_INLINE void add_row(const float* in, const float* w, Index w_step, Vec (&sums)[Pixels]) {
  constexpr int kBeside = (Taps - 1) * Reach;
  constexpr int kReach = (Pixels - 1) * Step + kBeside + 1;  // columns of `in`
  Vec taps[Taps];
#pragma GCC unroll 8
  for (int s = 0; s < Taps; ++s) taps[s] = load(w + s * w_step);
#pragma GCC unroll 40
  for (int e = 0; e < kReach; ++e) {
    if (e < Border::left || e >= kReach - Border::right) continue;
    const Vec value = held(load(in + e * kBlock));
#pragma GCC unroll 8
    for (int s = 0; s < Taps; ++s) {
      const int at = e - s * Reach;
      const int j = at / Step;
      if (at < 0 || at % Step != 0 || j >= Pixels) continue;
      sums[j] = fma(value, taps[s], sums[j]);
    }
  }
}

// Prefetches the input of later rows. If a phase writes only some pixels of a row (step > 1), the
// function also prefetches the output rows that are written next. Prefetching an address outside
// any array is harmless.
template <int Pixels, int Step>
__attribute__((noinline)) void ask_ahead(const DepthwisePhase& z, const Lanes& lanes,
                                         const float* in, Index row, Index column, Index rows) {
  const float* const next = in + z.ahead * z.w.in * kBlock;
  for (int e = 0; e < Pixels * Step; ++e) __builtin_prefetch(next + e * kBlock);
  const Index lines = z.w.step > 1 ? Pixels * z.w.step : 0;
  for (Index i = 0; i < z.h.step; ++i) {
    const Index out_row = (row + rows) * z.h.step + i;
    const float* const out = lanes.out + (out_row * z.out_w + column * z.w.step) * kBlock;
    for (Index e = 0; e < lines; ++e) __builtin_prefetch(out + e * kBlock, 1);
  }
}

// Computes pixels [column, column + Pixels) of several rows.
template <int Taps, int Step, int Reach, class Border, int Pixels>
CONVSCOPE_INLINE void unrolled_rows(const DepthwisePhase& z, const Lanes& lanes, Index column,
                                    Index begin, Index end) {
  const Index left = z.w.at + column * Step;
  const Index in_row = z.h.reach * z.w.in * kBlock;
  const Index w_row = z.h.tap_step * z.w.kernel * kBlock;
  const Index w_step = z.w.tap_step * kBlock;
  const float* const w_first = lanes.w + (z.h.tap * z.w.kernel + z.w.tap) * kBlock;
  const bool asks = z.ahead > 0 && lanes.first;
  for (Index row = begin; row < end; ++row) {
    const KernelRows rows(z.h, row);
    const float* in = lanes.in + (rows.at * z.w.in + left) * kBlock;
    const float* w = w_first + rows.begin * w_row;
    if (asks) ask_ahead<Pixels, Step>(z, lanes, in, row, column, end - begin);
    Vec sums[Pixels];
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j] = lanes.start;
    for (Index r = rows.begin; r < rows.end; ++r, in += in_row, w += w_row) {
      add_row<Taps, Step, Reach, Border>(in, w, w_step, sums);
    }
    store_sums<Pixels>(z, lanes, row, column, sums);
  }
}

template <int Taps, int Step, int Reach, int Pixels>
void unrolled_strip(const DepthwisePhase& z, const Lanes& lanes, Index column, Index begin,
                    Index end) {
  constexpr int kBeside = (Taps - 1) * Reach;
  constexpr int kHalf = Pixels > kPlainPixels ? Pixels / 2 : Pixels;
  const Index left = z.w.at + column * Step;
  const Index beyond = left + (Pixels - 1) * Step + kBeside + 1 - z.w.in;
  const bool done = with_border<kBeside, Step>(
      left, beyond, [&]<class Border>(Border) __attribute__((always_inline)) {
        unrolled_rows<Taps, Step, Reach, Border, Pixels>(z, lanes, column, begin, end);
      });
  if (done) return;
  plain_strip<kHalf>(z, lanes, column, begin, end);
  if constexpr (kHalf < Pixels) {
    plain_strip<Pixels - kHalf>(z, lanes, column + kHalf, begin, end);
  }
}

// ---- selection ---------------------------------------------------------------------------------

using StripFunction = void (*)(const DepthwisePhase& z, const Lanes& lanes, Index column,
                               Index begin, Index end);

template <int Taps, int Step, int Reach, int Pixels>
constexpr StripFunction strip_entry() {
  if constexpr (Taps == 0 || kLanes == 1) {  // one lane gains nothing, and compiles slowly
    if constexpr (Pixels <= kPlainPixels) return plain_strip<Pixels>;
  } else if constexpr (Pixels <= kPixelsBeside<Taps>) {
    return unrolled_strip<Taps, Step, Reach, Pixels>;
  }
  return nullptr;
}
// The functions for strips of 1, 2, ... pixels.
template <int Taps, int Step, int Reach = 1>
constexpr StripFunction kStrips[14] = {
    strip_entry<Taps, Step, Reach, 1>(),  strip_entry<Taps, Step, Reach, 2>(),
    strip_entry<Taps, Step, Reach, 3>(),  strip_entry<Taps, Step, Reach, 4>(),
    strip_entry<Taps, Step, Reach, 5>(),  strip_entry<Taps, Step, Reach, 6>(),
    strip_entry<Taps, Step, Reach, 7>(),  strip_entry<Taps, Step, Reach, 8>(),
    strip_entry<Taps, Step, Reach, 9>(),  strip_entry<Taps, Step, Reach, 10>(),
    strip_entry<Taps, Step, Reach, 11>(), strip_entry<Taps, Step, Reach, 12>(),
    strip_entry<Taps, Step, Reach, 13>(), strip_entry<Taps, Step, Reach, 14>()};

struct Form {
  const StripFunction* strips;
  int pixels;  // at most
};

// Returns the strip functions for a row of the kernel. Rows have 3, 5 or 7 taps; in a phase of
// backward_data with stride 2 they have 1, 2, 3 or 4.
Form form_of(const DepthwisePhase& z) {
  const bool fits = z.w.reach <= 2 && z.w.taps <= 7 && z.h.taps * z.w.taps <= kSumChain;
  if (fits && z.w.reach == 2) {
    if (z.w.taps == 3 && z.w.pixel == 1) return {kStrips<3, 1, 2>, kPixelsBeside<3>};
    return {kStrips<0, 0>, kPlainPixels};
  }
  switch (fits ? z.w.pixel * 10 + z.w.taps : 0) {
    case 11:
      return {kStrips<1, 1>, kPixelsBeside<1>};
    case 12:
      return {kStrips<2, 1>, kPixelsBeside<2>};
    case 13:
      return {kStrips<3, 1>, kPixelsBeside<3>};
    case 14:
      return {kStrips<4, 1>, kPixelsBeside<4>};
    case 15:
      return {kStrips<5, 1>, kPixelsBeside<5>};
    case 17:
      return {kStrips<7, 1>, kPixelsBeside<7>};
    case 23:
      return {kStrips<3, 2>, kPixelsBeside<3>};
    case 25:
      return {kStrips<5, 2>, kPixelsBeside<5>};
    case 27:
      return {kStrips<7, 2>, kPixelsBeside<7>};
    default:
      return {kStrips<0, 0>, kPlainPixels};
  }
}

void rows(const DepthwisePhase& z, const DepthwiseBlock& block, Index begin, Index end) {
  const Form form = form_of(z);
  const StripWidths widths(z.w.count, form.pixels);
  for (Index strip = 0, column = 0; strip < widths.strips; ++strip) {
    const Index pixels = widths.width(strip);
    for (int lane = 0; lane < kBlock; lane += kLanes) {
      form.strips[pixels - 1](z, lanes_of(block, lane), column, begin, end);
    }
    column += pixels;
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(depthwise_nchw16c, (DepthwiseNchw16c{.rows = CONVSCOPE_ISA::rows}))
