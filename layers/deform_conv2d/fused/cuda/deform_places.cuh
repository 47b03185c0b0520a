// SPDX-License-Identifier: Apache-2.0
// deform_places.cuh: where a tap of a pixel of y reads x (a place), as problem.h defines. The code
// follows layers/deform_conv2d/place.h line by line, in f32.
// Read next  deform_sampler.cuh
#pragma once

#include <cstdint>

#include "layers/deform_conv2d/fused/cuda/deform_pieces.cuh"

namespace convscope::deform_cuda {

struct Places {
  const void* offset = nullptr;  // [N, 2 O R S, P, Q]
  const void* mask = nullptr;    // [N, O R S, P, Q], or null
  bool in_f32 = true;            // else in the 16 bits of the problem's type
};

template <class Half>
__device__ inline float number_at(const void* from, bool in_f32, std::int64_t i) {
  return in_f32 ? __ldg(static_cast<const float*>(from) + i)
                : to_float(static_cast<const Half*>(from)[i]);
}

// A pixel of y: its image, its position in the image, and the place of tap (0,0) without an offset.
struct OutPixel {
  int image = -1, at = 0, v = 0, u = 0;
};
__device__ inline OutPixel out_pixel(const DeformShape& s, int pixel) {
  if (pixel >= s.out_pixels()) return {};
  OutPixel out;
  out.image = s.by_out_area.divide(pixel);
  out.at = pixel - out.image * s.out_area();
  const int p = s.by_out_w.divide(out.at);
  out.v = p * s.stride_h - s.pad_h;
  out.u = (out.at - p * s.out_w) * s.stride_w - s.pad_w;
  return out;
}

struct Offset {
  float v = 0, u = 0, factor = 1;
};
// Reads key j = o R S + tap.
template <class Half>
__device__ inline Offset read_offset(const Places& z, const DeformShape& s, const OutPixel& pixel,
                                     int key) {
  if (pixel.image < 0) return {};
  const std::int64_t at = static_cast<std::int64_t>(pixel.image) * s.keys() + key;
  const std::int64_t area = s.out_area();
  Offset out;
  out.v = number_at<Half>(z.offset, z.in_f32, 2 * at * area + pixel.at);
  out.u = number_at<Half>(z.offset, z.in_f32, (2 * at + 1) * area + pixel.at);
  if (z.mask != nullptr) out.factor = number_at<Half>(z.mask, z.in_f32, at * area + pixel.at);
  return out;
}

// The four pixels around a place (sampling position). `down` and `right` are the distance of the
// place from the first pixel.
struct Place {
  int pixel[4] = {-1, -1, -1, -1};  // -1: outside
  int h = -2, w = -2;               // the first pixel, from -1 on; -2: the place is outside
  float down = 0, right = 0;

  __device__ bool inside() const { return h >= -1; }

  __device__ float weight(int i) const {
    return (i / 2 == 1 ? down : 1 - down) * (i % 2 == 1 ? right : 1 - right);
  }
};
__device__ inline Place place_of(const DeformShape& s, const OutPixel& pixel, int tap,
                                 const Offset& offset) {
  Place out;
  if (pixel.image < 0) return out;
  const int r = s.by_kernel_w.divide(tap);
  const float v = static_cast<float>(pixel.v + r * s.dilation_h) + offset.v;
  const float u = static_cast<float>(pixel.u + (tap - r * s.kernel_w) * s.dilation_w) + offset.u;
  // A NaN position counts as inside, because comparisons with NaN are false. Its sample is NaN.
  if (v <= -1 || v >= static_cast<float>(s.in_h) || u <= -1 || u >= static_cast<float>(s.in_w)) {
    return out;
  }
  const float h = floorf(v), w = floorf(u);
  out.down = v - h;
  out.right = u - w;
  out.h = h == h ? static_cast<int>(h) : 0;  // NaN weights, at pixels that exist
  out.w = w == w ? static_cast<int>(w) : 0;
  const int from = (pixel.image * s.in_h + out.h) * s.in_w + out.w;
  const bool above = out.h >= 0, below = out.h + 1 < s.in_h;
  const bool left = out.w >= 0, right = out.w + 1 < s.in_w;
  if (above && left) out.pixel[0] = from;
  if (above && right) out.pixel[1] = from + 1;
  if (below && left) out.pixel[2] = from + s.in_w;
  if (below && right) out.pixel[3] = from + s.in_w + 1;
  return out;
}

// The pixels that a row adds up, and their weights. A pixel is given by the position of its piece
// 0. A corner outside of the image is replaced by the pixel of zeros after the last packed pixel,
// with weight 0.
struct Corners {
  int4 at;
  float4 weight;
};
__device__ inline Corners corners_of(const DeformShape& s, const OutPixel& pixel, int tap,
                                     const Offset& offset, float scale) {
  const Place place = place_of(s, pixel, tap, offset);
  const float factor = offset.factor * scale;
  // A sample outside of the image is 0 times its mask, so a NaN mask makes the sample NaN.
  const float none = place.inside() ? 0.0f : 0 * factor;
  const int pieces = s.x_pieces();
  int at[4];
  float weight[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    at[i] = (place.pixel[i] < 0 ? s.in_pixels() : place.pixel[i]) * pieces;
    weight[i] = place.pixel[i] < 0 ? none : place.weight(i) * factor;
  }
  return {make_int4(at[0], at[1], at[2], at[3]),
          make_float4(weight[0], weight[1], weight[2], weight[3])};
}

}  // namespace convscope::deform_cuda
