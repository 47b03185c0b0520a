// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c_weight_simd.cpp: backward_weight of a depthwise convolution in NCHW16c. The
// lanes are 16 channels, and the accumulators of some kernel rows stay in registers over a strip of
// pixels.
//
// Method     A strip is P neighbouring columns of dy, over all rows and images. In each row the P
//            vectors of dy are loaded into registers, and each x that G kernel rows need is loaded
//            once and multiplied by every pixel of dy that shares a tap with it. G S accumulators,
//            P dy and one x fill the registers. G S P FMAs cost G (P + S - 1) loads of x and P of
//            dy: about 0.6 for each FMA in a 3x3 kernel, 0.5 in larger kernels, and a CPU can do
//            one. x and dy outside their images are neither read nor multiplied; for usual padding
//            the columns outside are compile-time constants. Other problems or padding take plain
//            loops, with up to 8 taps of one kernel row in registers and x as an operand in memory.
// Choices    G, the number of kernel rows, is chosen so that at least 8 accumulators are in use
//            where they fit (an FMA takes 4 cycles, and 2 start in a cycle): 16 registers hold 3
//            rows of a 3x3 kernel, 2 of 5x5, 1 of 7x7; 32 hold 3, 5 and 3. Strips have up to 7
//            pixels where 32 registers hold them (7 divides the maps of ImageNet), else 5.
// Numerics   The products of a strip are summed in chains of kSumChain pixels
//            (framework/simd/sum_chain.h).
// Read next  depthwise_nchw16c_weights.cpp, the caller
#include "framework/int_math.h"
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c_strips.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// Returns G, the number of kernel rows in registers.
template <int S>
constexpr int kRowsAtOnce = kRegisters == 32 ? (S == 5 ? 5 : 3)
                                             : (S == 3   ? 3
                                                : S == 5 ? 2
                                                         : 1);
// The maximum number of pixels of a strip. Two registers are reserved, one for x and one for the
// compiler.
constexpr int kMaxPixels = most_pixels(kRegisters == 32 ? 7 : 5);
template <int Sums>
constexpr int kPixelsBeside =
    kRegisters - Sums - 2 < kMaxPixels ? kRegisters - Sums - 2 : kMaxPixels;

template <int Sums>
CONVSCOPE_INLINE void add_to(float* sums, Vec (&chain)[Sums]) {
#pragma GCC unroll 32
  for (int i = 0; i < Sums; ++i) {
    store(sums + i * kBlock, load(sums + i * kBlock) + chain[i]);
    chain[i] = zero();
  }
}

// Returns the unit for the vector of channels that starts at `lane`. Only the first vector of a
// block prefetches, because its cache lines contain all 16 channels.
CONVSCOPE_INLINE DepthwiseUnit lanes_of(const DepthwiseUnit& unit, int lane) {
  DepthwiseUnit out = unit;
  out.x += lane;
  out.dy += lane;
  if (lane > 0) out.x_ahead = out.dy_ahead = 0;
  return out;
}

// ---- plain -------------------------------------------------------------------------------------

constexpr int kPlainTaps = 8;

// Adds the products of taps [s, s + Taps) of kernel row r and columns [begin, end) of dy.
template <int Taps>
void plain_taps(const DepthwiseMap& z, const DepthwiseUnit& unit, Index begin, Index end, Index r,
                Index s, float* to) {
  const Index left = s * z.dilation_w - z.pad_left;
  const Index step = z.dilation_w * kBlock;
  // Pixels whose taps are all inside.
  const Index right = z.w - 1 - left - (Taps - 1) * z.dilation_w;
  const Index whole = left >= 0 ? 0 : ceil_div(-left, z.stride_w);
  const Index whole_end = right < 0 ? 0 : right / z.stride_w + 1;
  Vec sums[Taps];
#pragma GCC unroll 8
  for (int i = 0; i < Taps; ++i) sums[i] = zero();
  int terms = 0;
  for (Index image = 0; image < unit.images; ++image) {
    for (Index p = unit.begin; p < unit.end; ++p) {
      const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
      if (h < 0 || h >= z.h) continue;
      const float* const x = unit.x + image * unit.x_step + h * z.w * kBlock;
      const float* const dy = unit.dy + image * unit.dy_step + p * z.q * kBlock;
      for (Index q = begin; q < end; ++q) {
        const Vec value = load(dy + q * kBlock);
        const Index at = left + q * z.stride_w;
        const float* const from = x + at * kBlock;
        if (q >= whole && q < whole_end) {
#pragma GCC unroll 8
          for (int i = 0; i < Taps; ++i) sums[i] = fma(load(from + i * step), value, sums[i]);
        } else {
#pragma GCC unroll 8
          for (int i = 0; i < Taps; ++i) {
            const Index column = at + i * z.dilation_w;
            if (column >= 0 && column < z.w) sums[i] = fma(load(from + i * step), value, sums[i]);
          }
        }
        if (++terms < kSumChain) continue;
        add_to<Taps>(to, sums);
        terms = 0;
      }
    }
  }
  add_to<Taps>(to, sums);
}

using PlainFunction = void (*)(const DepthwiseMap& z, const DepthwiseUnit& unit, Index begin,
                               Index end, Index r, Index s, float* to);
constexpr PlainFunction kPlain[kPlainTaps] = {plain_taps<1>, plain_taps<2>, plain_taps<3>,
                                              plain_taps<4>, plain_taps<5>, plain_taps<6>,
                                              plain_taps<7>, plain_taps<8>};

// Adds the products of columns [begin, end) for the channels of one vector.
void plain(const DepthwiseMap& z, const DepthwiseUnit& lanes, Index begin, Index end, float* sums) {
  for (Index r = 0; r < z.r; ++r) {
    for (Index s = 0; s < z.s; s += kPlainTaps) {
      const Index taps = z.s - s < kPlainTaps ? z.s - s : kPlainTaps;
      kPlain[taps - 1](z, lanes, begin, end, r, s, sums + (r * z.s + s) * kBlock);
    }
  }
}

// ---- unrolled ----------------------------------------------------------------------------------

// Adds the products of one row of dy in a strip. Only the kernel rows [from, end) of `Rows` read a
// row of x inside the image. `All` means that all kernel rows do.
template <int Rows, int S, int Step, int Reach, int Pixels, class Border, bool All>
CONVSCOPE_INLINE void add_strip(const float* x, Index x_row, const float* dy, int from, int end,
                                Vec (&sums)[Rows * S]) {
  constexpr int kReach = (Pixels - 1) * Step + (S - 1) * Reach + 1;
  Vec value[Pixels];
#pragma GCC unroll 8
  for (int j = 0; j < Pixels; ++j) value[j] = load(dy + j * kBlock);
  const auto add = [&](int r, int e) __attribute__((always_inline)) {
    const Vec pixel = held(load(x + r * x_row + e * kBlock));
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const int at = e - s * Reach;
      const int j = at / Step;
      if (at < 0 || at % Step != 0 || j >= Pixels) continue;
      sums[r * S + s] = fma(pixel, value[j], sums[r * S + s]);
    }
  };
  if constexpr (All) {  // row by row in each column: consecutive FMAs use different accumulators
#pragma GCC unroll 40
    for (int e = Border::left; e < kReach - Border::right; ++e) {
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) add(r, e);
    }
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      if (r < from || r >= end) continue;
#pragma GCC unroll 40
      for (int e = Border::left; e < kReach - Border::right; ++e) add(r, e);
    }
  }
}

// Prefetches the data of the next unit. Prefetching an address outside any array is harmless.
template <int Step, int Pixels>
__attribute__((noinline)) void ask_ahead(const DepthwiseMap& z, const DepthwiseUnit& unit,
                                         const float* x, const float* dy) {
  for (int j = 0; j < Pixels; ++j) __builtin_prefetch(dy + unit.dy_ahead + j * kBlock);
  for (int i = 0; i < Step; ++i) {
    const float* const next = x + unit.x_ahead + i * z.w * kBlock;
    for (int e = 0; e < Pixels * Step; ++e) __builtin_prefetch(next + e * kBlock);
  }
}

template <int Rows, int S, int Step, int Reach, int Pixels, class Border>
CONVSCOPE_INLINE void strip_sums(const DepthwiseMap& z, const DepthwiseUnit& unit, Index r,
                                 Index column, float* to) {
  const Index left = column * Step - z.pad_left;
  const Index reach = z.dilation_h;
  const Index x_row = reach * z.w * kBlock;
  const bool asks = r == 0 && unit.dy_ahead != 0;
  Vec sums[Rows * S];
#pragma GCC unroll 32
  for (int i = 0; i < Rows * S; ++i) sums[i] = zero();
  int terms = 0;
  for (Index image = 0; image < unit.images; ++image) {
    const float* const x = unit.x + image * unit.x_step + left * kBlock;
    const float* dy = unit.dy + image * unit.dy_step + (unit.begin * z.q + column) * kBlock;
    for (Index p = unit.begin; p < unit.end; ++p, dy += z.q * kBlock) {
      const Index h = p * z.stride_h - z.pad_top + r * reach;
      const float* const at = x + h * z.w * kBlock;
      if (asks) ask_ahead<Step, Pixels>(z, unit, at, dy);
      if (h >= 0 && h + (Rows - 1) * reach < z.h) {
        add_strip<Rows, S, Step, Reach, Pixels, Border, true>(at, x_row, dy, 0, Rows, sums);
      } else {
        int from = 0, end = Rows;
        while (from < Rows && h + from * reach < 0) ++from;
        while (end > from && h + (end - 1) * reach >= z.h) --end;
        add_strip<Rows, S, Step, Reach, Pixels, Border, false>(at, x_row, dy, from, end, sums);
      }
      terms += Pixels;
      if (terms <= kSumChain - Pixels) continue;
      add_to<Rows * S>(to, sums);
      terms = 0;
    }
  }
  add_to<Rows * S>(to, sums);
}

// Returns false when the columns outside the image differ from those of usual padding.
template <int Rows, int S, int Step, int Reach, int Pixels>
bool strip(const DepthwiseMap& z, const DepthwiseUnit& unit, Index r, Index column, float* to) {
  constexpr int kBeside = (S - 1) * Reach;
  const Index left = column * Step - z.pad_left;
  const Index beyond = left + (Pixels - 1) * Step + kBeside + 1 - z.w;
  return with_border<kBeside, Step>(
      left, beyond, [&]<class Border>(Border) __attribute__((always_inline)) {
        strip_sums<Rows, S, Step, Reach, Pixels, Border>(z, unit, r, column, to);
      });
}

using StripFunction = bool (*)(const DepthwiseMap& z, const DepthwiseUnit& unit, Index r,
                               Index column, float* to);

template <int Rows, int S, int Step, int Reach, int Pixels>
constexpr StripFunction strip_entry() {
  if constexpr (Pixels <= kPixelsBeside<kRowsAtOnce<S> * S> && kLanes > 1)
    return strip<Rows, S, Step, Reach, Pixels>;
  return nullptr;
}
// The functions for strips of 1, 2, ... pixels.
template <int Rows, int S, int Step, int Reach>
constexpr StripFunction kStrips[7] = {
    strip_entry<Rows, S, Step, Reach, 1>(), strip_entry<Rows, S, Step, Reach, 2>(),
    strip_entry<Rows, S, Step, Reach, 3>(), strip_entry<Rows, S, Step, Reach, 4>(),
    strip_entry<Rows, S, Step, Reach, 5>(), strip_entry<Rows, S, Step, Reach, 6>(),
    strip_entry<Rows, S, Step, Reach, 7>()};

// Computes all rows of a kernel of S x S taps, for the channels of one vector.
template <int S, int Step, int Reach>
CONVSCOPE_INLINE void strip_of_kernel(const DepthwiseMap& z, const DepthwiseUnit& lanes,
                                      Index column, Index pixels, float* sums) {
  constexpr int kRows = kRowsAtOnce<S>;
  constexpr int kRest = S % kRows;
  const StripFunction whole = kStrips<kRows, S, Step, Reach>[pixels - 1];
  if (!whole(z, lanes, 0, column, sums)) return plain(z, lanes, column, column + pixels, sums);
  for (Index r = kRows; r + kRows <= S; r += kRows) {
    whole(z, lanes, r, column, sums + r * S * kBlock);
  }
  if constexpr (kRest > 0) {
    constexpr Index kLast = S - kRest;
    kStrips<kRest, S, Step, Reach>[pixels - 1](z, lanes, kLast, column, sums + kLast * S * kBlock);
  }
}

template <int S, int Step, int Reach = 1>
void unrolled(const DepthwiseMap& z, const DepthwiseUnit& unit, float* sums) {
  const StripWidths widths(z.q, kPixelsBeside<kRowsAtOnce<S> * S>);
  for (Index i = 0, column = 0; i < widths.strips; ++i) {
    const Index pixels = widths.width(i);
    for (int lane = 0; lane < kBlock; lane += kLanes) {
      strip_of_kernel<S, Step, Reach>(z, lanes_of(unit, lane), column, pixels, sums + lane);
    }
    column += pixels;
  }
}

void weight(const DepthwiseMap& z, const DepthwiseUnit& unit, float* sums) {
  const bool fits = z.r == z.s && z.s <= 7 && z.dilation_w <= 2 && z.stride_w <= 2 &&
                    kLanes > 1;  // one lane gains nothing, and compiles slowly
  switch (fits ? (z.dilation_w - 1) * 100 + z.stride_w * 10 + z.s : 0) {
    case 13:
      return unrolled<3, 1>(z, unit, sums);
    case 15:
      return unrolled<5, 1>(z, unit, sums);
    case 17:
      return unrolled<7, 1>(z, unit, sums);
    case 23:
      return unrolled<3, 2>(z, unit, sums);
    case 25:
      return unrolled<5, 2>(z, unit, sums);
    case 27:
      return unrolled<7, 2>(z, unit, sums);
    case 113:
      return unrolled<3, 1, 2>(z, unit, sums);
    default:
      for (int lane = 0; lane < kBlock; lane += kLanes) {
        plain(z, lanes_of(unit, lane), 0, z.q, sums + lane);
      }
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(depthwise_nchw16c_weight,
                       (DepthwiseNchw16cWeight{.weight = CONVSCOPE_ISA::weight}))
