// SPDX-License-Identifier: Apache-2.0
// deform_kernels.h: the parts of fused deformable convolution that depend on the instruction set:
// sampling positions (places) of taps, samples, and the gradients of samples.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// One tap for a run of output pixels: the positions of its four corner pixels in x, and their
// bilinear weights. Each row has one element for each pixel, at most kMax. The rows `pixel` and
// `corners` hold the bits of a std::int32_t. (The constant length of a row tells the compiler that
// rows do not overlap.)
enum class PlaceRow { pixel = 0, weight = 4, corners = 8, down, right, factor, count };
struct DeformPlaces {
  static constexpr int kMax = 64;
  float* data = nullptr;  // [PlaceRow::count, kMax]

  // Returns a row. The function is always inlined, because the linker must not mix copies for
  // different instruction sets.
  [[gnu::always_inline]] float* row(PlaceRow which, int corner = 0) const {
    return data + (static_cast<int>(which) + corner) * kMax;
  }
  [[gnu::always_inline]] float at(PlaceRow which, std::int64_t j, int corner = 0) const {
    return row(which, corner)[j];
  }
  [[gnu::always_inline]] std::int32_t integer_at(PlaceRow which, std::int64_t j,
                                                 int corner = 0) const {
    return __builtin_bit_cast(std::int32_t, at(which, j, corner));
  }
};
inline constexpr int kPlaceRows = static_cast<int>(PlaceRow::count);

struct DeformPlacesTask {
  int pixels;
  const float *base_v, *base_u;      // of the pixels, for tap (0,0)
  float tap_v, tap_u;                // r dilation_h, s dilation_w
  const float *offset_v, *offset_u;  // of the pixels
  const float* mask;                 // of the pixels; null: 1
  std::int32_t height, width;        // of x
  DeformPlaces to;
};

// Samples images [blocks, H W, 16]: for pixel j and block i
//   to[j to_step + 16 i ..] = sum over the corners of weight x[corner, ..]
// If the last block has fewer channels, the lanes after them are written, too.
struct DeformSampleTask {
  int pixels;
  DeformPlaces places;
  const float* x;
  std::int64_t x_block;  // from one block to the next
  int blocks;
  float* to;
  std::int64_t to_step;
};

// Backward pass for one block of 16 channels and one tap. g [pixels, 16] is the gradient of the
// samples:
//   dx[corner, ..] += weight g[j, ..]               (dx null: not computed)
//   products[j products_step + corner] = sum over lanes of g[j, ..] x[corner, ..]   (likewise)
// The product is 0 at corners outside of the image.
struct DeformBackTask {
  int pixels;
  DeformPlaces places;
  const float* g;
  const float* x;
  float* dx;
  float* products;
  std::int64_t products_step;
};

struct DeformKernels {
  void (*places)(const DeformPlacesTask& task) = nullptr;
  void (*sample)(const DeformSampleTask& task) = nullptr;
  void (*back)(const DeformBackTask& task) = nullptr;
};
extern IsaTable<DeformKernels> deform_kernels;

}  // namespace convscope
