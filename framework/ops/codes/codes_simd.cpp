// SPDX-License-Identifier: Apache-2.0
// codes_simd.cpp: arrays of codes: rounding from f32, conversion to f32, and max pooling.
//
// Numerics   v / step is computed in f32 as a product with 1 / step, with a relative error below 3
//            units of 2^-24. Where the fraction of a quotient is closer to 1/2 than this error, the
//            vector is recomputed in double with a division.
#include "framework/ops/codes/codes_simd.h"

#include "framework/simd/int8_vector.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// Rounds up to kLanes numbers to codes, and adds row.offset. Each result is in 0..255.
class Rounding {
 public:
  CONVSCOPE_INLINE explicit Rounding(const RoundedRow& row)
      : row_(row),
        inverse_(broadcast(static_cast<float>(1 / row.step))),
        low_(broadcast(static_cast<float>(row.low))),
        high_(broadcast(static_cast<float>(row.high))),
        offset_(set_ints(row.offset)) {
    const int top = (row.high > -row.low ? row.high : -row.low) + 1;
    sure_ = broadcast(static_cast<float>(0.5 - 6 * 0x1p-24 * top));
  }

  CONVSCOPE_INLINE Ints operator()(const float* from, int count) const {
    // Clips before the conversion, so that integers cannot overflow; a NaN becomes the lowest code.
    const Vec number = count == kLanes ? load(from) : load_first(from, count);
    const Vec real = min(max(number * inverse_, low_), high_);
    Ints code = round_to_ints(real);
    if (__builtin_expect(any_beyond(real - to_floats(code), sure_), 0)) {
      std::int32_t codes[kLanes] = {};
      exactly(from, count, codes);
      code = load_ints(codes);
    }
    return (code + offset_) & set_ints(255);
  }

 private:
  [[gnu::noinline]] void exactly(const float* from, int count, std::int32_t* to) const {
    constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: removes the fraction
    for (int l = 0; l < count; ++l) {
      double real = static_cast<double>(from[l]) / row_.step;
      if (!(real > row_.low)) real = row_.low;
      if (real > row_.high) real = row_.high;
      to[l] = static_cast<int>((real + kShift) - kShift);
    }
  }

  const RoundedRow& row_;
  const Vec inverse_, low_, high_;
  Vec sure_;
  const Ints offset_;
};

// Stores `bytes` channels, at most four, of `count` pixels. Lane j holds the channels of pixel j,
// beginning in the lowest byte. Pixels are `pixel` bytes apart.
CONVSCOPE_INLINE void store_pixels(const std::int32_t* lanes, int count, int bytes,
                                   std::int64_t pixel, std::uint8_t* to) {
  if (bytes == 4) {
    for (int j = 0; j < count; ++j) __builtin_memcpy(to + j * pixel, lanes + j, 4);
    return;
  }
  for (int j = 0; j < count; ++j) {
    for (int i = 0; i < bytes; ++i) {
      to[j * pixel + i] = static_cast<std::uint8_t>(lanes[j] >> (8 * i));
    }
  }
}

void round(const RoundedRow& row) {
  const Rounding rounded(row);
  std::int32_t codes[kLanes];
  const int bytes = row.lanes > row.channels ? row.lanes : row.channels;
  for (std::int64_t p = 0; p < row.pixels; p += kLanes) {
    const int count = row.pixels - p < kLanes ? static_cast<int>(row.pixels - p) : kLanes;
    std::uint8_t* const to = row.to + p * row.pixel;
    for (int c = 0; c < bytes; c += 4) {  // four channels per lane
      Ints four = set_ints(0);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (c + i >= row.channels) break;
        four = four | shift_left(rounded(row.from + (c + i) * row.plane + p, count), 8 * i);
      }
      if (bytes == 3 && row.pixel == 3 && count == kLanes) {
        store_three_bytes(to, four);
      } else {
        store_ints(codes, four);
        store_pixels(codes, count, bytes - c < 4 ? bytes - c : 4, row.pixel, to + c);
      }
    }
  }
}

void flip(const std::uint8_t* from, std::int64_t count, std::uint8_t* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] ^ 128;
}

// A code times the step size is exact in double, and is rounded once when converted to f32.
void real_numbers(const std::uint8_t* from, bool is_signed, double step, std::int64_t count,
                  float* to) {
  if (is_signed) {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<float>(step * static_cast<std::int8_t>(from[i]));
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(step * from[i]);
  }
}

constexpr int kBlock = 16;

using UnsignedPixel = std::uint8_t __attribute__((vector_size(kBlock)));
using SignedPixel = std::int8_t __attribute__((vector_size(kBlock)));

template <class T, class Pixel>
CONVSCOPE_INLINE void pool_row_of(const CodesPool& z, std::int64_t plane, std::int64_t row) {
  const auto* const image = reinterpret_cast<const T*>(z.from) + plane * z.h * z.w * kBlock;
  auto* to = reinterpret_cast<T*>(z.to) + (plane * z.p + row) * z.q * kBlock;
  const std::int64_t top = row * z.stride_h - z.pad_h;
  const std::int64_t h_begin = top < 0 ? 0 : top;
  const std::int64_t h_end = top + z.kernel_h < z.h ? top + z.kernel_h : z.h;
  for (std::int64_t q = 0; q < z.q; ++q, to += kBlock) {
    const std::int64_t left = q * z.stride_w - z.pad_w;
    const std::int64_t w_begin = left < 0 ? 0 : left;
    const std::int64_t w_end = left + z.kernel_w < z.w ? left + z.kernel_w : z.w;
    Pixel largest;
    __builtin_memcpy(&largest, image + (h_begin * z.w + w_begin) * kBlock, kBlock);
    for (std::int64_t h = h_begin; h < h_end; ++h) {
      for (std::int64_t w = w_begin; w < w_end; ++w) {
        Pixel at;
        __builtin_memcpy(&at, image + (h * z.w + w) * kBlock, kBlock);
        largest = largest < at ? at : largest;
      }
    }
    __builtin_memcpy(to, &largest, kBlock);
  }
}

void pool_row(const CodesPool& pool, std::int64_t plane, std::int64_t row) {
  if (pool.is_signed) {
    pool_row_of<std::int8_t, SignedPixel>(pool, plane, row);
  } else {
    pool_row_of<std::uint8_t, UnsignedPixel>(pool, plane, row);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(code_kernels, (CodeKernels{.round = CONVSCOPE_ISA::round,
                                                  .flip = CONVSCOPE_ISA::flip,
                                                  .real_numbers = CONVSCOPE_ISA::real_numbers,
                                                  .pool_row = CONVSCOPE_ISA::pool_row}))
