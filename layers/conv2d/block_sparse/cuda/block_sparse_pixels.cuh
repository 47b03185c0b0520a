// SPDX-License-Identifier: Apache-2.0
// block_sparse_pixels.cuh: functions that the kernels of block_sparse share. They compute a pixel's
// offset in x and the taps inside the image, and multiply 16 channels by 8 columns over a K
// dimension of 8.
// Read next  block_sparse_lists.cuh; block_sparse_cuda.cu, block_sparse_weights_cuda.cu
#pragma once

#include "framework/cuda/address.cuh"
#include "framework/cuda/tensor_cores/mma_tf32.cuh"
#include "layers/conv2d/block_sparse/cuda/block_sparse_lists.cuh"

namespace convscope::block_sparse {

inline constexpr int kMaxTaps = 64;  // a pixel's mask has a bit for each tap
inline constexpr int kPixels = 8;    // pixels of a product
inline constexpr int kPeriod = 8;    // products before an accumulator restarts from zero

struct Geometry {
  int images = 0, image_size = 0, channels = 0;  // images; C H W; K
  int h = 0, w = 0, p = 0, q = 0, taps_h = 1, taps_w = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, apart_h = 1, apart_w = 1;
  FastDivisor by_q, by_area;
};
inline Geometry geometry_of(const Conv2dProblem& z) {
  return {.images = narrow(z.n),
          .image_size = narrow(z.c * z.h * z.w),
          .channels = narrow(z.k),
          .h = narrow(z.h),
          .w = narrow(z.w),
          .p = narrow(z.p()),
          .q = narrow(z.q()),
          .taps_h = narrow(z.r),
          .taps_w = narrow(z.s),
          .stride_h = narrow(z.stride_h),
          .stride_w = narrow(z.stride_w),
          .pad_h = narrow(z.pad_top),
          .pad_w = narrow(z.pad_left),
          .apart_h = narrow(z.dilation_h),
          .apart_w = narrow(z.dilation_w),
          .by_q = FastDivisor(narrow(z.q())),
          .by_area = FastDivisor(narrow(z.p() * z.q()))};
}

// A pixel of y. `from` is its offset in x at channel 0 and tap (0, 0), `inside` has a bit for each
// tap inside the image, and `to` is its offset in y at channel 0. Beyond the last pixel, `inside`
// is 0 and `to` is -1.
template <class Taps>
struct Pixel {
  int from;
  Taps inside;
  int to;
};
template <class Taps>
__device__ inline Pixel<Taps> pixel_at(const Geometry& z, int pixel) {
  const int area = z.p * z.q;
  if (pixel >= z.images * area) return {0, 0, -1};
  const int image = z.by_area.divide(pixel);
  const int at = pixel - image * area;
  const int row = z.by_q.divide(at);
  const int h = row * z.stride_h - z.pad_h, w = (at - row * z.q) * z.stride_w - z.pad_w;
  Pixel<Taps> out{image * z.image_size + h * z.w + w, 0, image * z.channels * area + at};
  Taps row_taps = 0;
  for (int s = 0; s < z.taps_w; ++s) {
    const bool is_inside = static_cast<unsigned>(w + s * z.apart_w) < static_cast<unsigned>(z.w);
    row_taps |= static_cast<Taps>(is_inside) << s;
  }
  for (int r = 0; r < z.taps_h; ++r) {
    const bool is_inside = static_cast<unsigned>(h + r * z.apart_h) < static_cast<unsigned>(z.h);
    out.inside |= is_inside ? row_taps << (r * z.taps_w) : 0;
  }
  return out;
}

template <class Taps>
__device__ inline Taps bit_of(int tap) {
  return tap < 0 ? Taps{0} : Taps{1} << tap;
}

// Adds the products of A [16 x 8] and each B [8 x 8] to the accumulators `high` and `low`. f32
// splits each operand into high and low TF32 parts; `low` accumulates the cross products. tf32 uses
// only the high parts.
template <int kTiles, bool kTf32>
__device__ inline void add_products(const float4& a, const float (&b)[kTiles][2],
                                    float (&high)[kTiles][4], float (&low)[kTiles][4]) {
  const HighLow a0 = high_low(a.x), a1 = high_low(a.y), a2 = high_low(a.z), a3 = high_low(a.w);
  const float a_high[4] = {a0.high, a1.high, a2.high, a3.high};
  const float a_low[4] = {a0.low, a1.low, a2.low, a3.low};
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if constexpr (kTf32) {
      mma_tf32(high[j], a_high, rounded_tf32(b[j][0]), rounded_tf32(b[j][1]));
    } else {
      const HighLow b0 = high_low(b[j][0]), b1 = high_low(b[j][1]);
      mma_tf32(low[j], a_low, b0.high, b1.high);
      mma_tf32(low[j], a_high, b0.low, b1.low);
      mma_tf32(high[j], a_high, b0.high, b1.high);
    }
  }
}

}  // namespace convscope::block_sparse
