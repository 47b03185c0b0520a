// SPDX-License-Identifier: Apache-2.0
// block_sparse_images.h: copies images to NCHW16c and back. NCHW problems and images of one pixel
// need these copies.
#pragma once

#include <algorithm>

#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/weight_sums.h"
#include "layers/dispatch/layout/block_copies_simd.h"

namespace convscope::block_sparse {

using Index = std::int64_t;

// Images [n,c,plane] in NCHW. If row > 0, the tensor is a matrix [n * plane, row] instead: each
// matrix row is one pixel with c channels.
struct Images {
  Index n, c, plane;
  Index row = 0;
  Index blocks() const { return ceil_div(c, kChannelBlock); }
  // Returns the size of the copy in NCHW16c.
  Index floats() const { return piece_floats(n * blocks() * plane * kChannelBlock); }
};

// Tells whether images and kernels have one pixel, as in a linear layer. The pixels of such images
// form one row, so that a tile has many pixels.
inline bool has_one_pixel(const Conv2dProblem& z) {
  return z.n > 1 && z.h * z.w * z.r * z.s == 1 && z.p() * z.q() == 1 && z.layout.x == z.layout.y;
}
// Returns an equivalent problem for images of one pixel: the pixels of up to kSumChain images
// (sum_chain.h) become one image of one row.
inline Conv2dProblem side_by_side(const Conv2dProblem& z) {
  Conv2dProblem out = z;
  if (!has_one_pixel(z)) return out;
  out.w = std::min<Index>(z.n, kSumChain);
  while (z.n % out.w != 0) --out.w;
  out.n = z.n / out.w;
  out.stride_h = out.stride_w = 1;
  return out;
}

// Copies the first `lanes` of 16 floats. If lanes is 16, the constant count compiles to vector
// copies.
inline void copy_lanes(const float* from, Index lanes, float* to) {
  if (lanes == kChannelBlock) {
    std::copy_n(from, kChannelBlock, to);
  } else {
    std::copy_n(from, lanes, to);
  }
}

// Calls copy(image, block, channels) for each block of each image.
template <class Copy>
void for_each_block(const Images& images, const Copy& copy) {
  parallel_for(images.n * images.blocks(), std::max<Index>(1, 4096 / images.plane),
               [&](Index begin, Index end) {
                 for (Index i = begin; i < end; ++i) {
                   const Index block = i % images.blocks();
                   copy(i / images.blocks(), block,
                        std::min(kChannelBlock, images.c - block * kChannelBlock));
                 }
               });
}

inline void to_nchw16c(const Images& images, const float* from, float* blocks) {
  const BlockCopyKernels& kernels = block_copy_kernels.get();
  for_each_block(images, [&](Index n, Index block, Index channels) {
    const Index c = block * kChannelBlock;
    float* to = blocks + (n * images.blocks() + block) * images.plane * kChannelBlock;
    if (images.row == 0) {
      return kernels.to_block(from + (n * images.c + c) * images.plane, images.plane,
                              static_cast<int>(channels), images.plane, false, to);
    }
    const float* at = from + n * images.plane * images.row + c;
    for (Index i = 0; i < images.plane; ++i, at += images.row, to += kChannelBlock) {
      copy_lanes(at, channels, to);
      std::fill_n(to + channels, kChannelBlock - channels, 0.0f);
    }
  });
}

// Copies NCHW16c back to the layout of `images`. If images.row > 0, it also copies lanes after the
// last channel, up to the end of the matrix row.
inline void from_nchw16c(const Images& images, const float* blocks, float* to) {
  const BlockCopyKernels& kernels = block_copy_kernels.get();
  for_each_block(images, [&](Index n, Index block, Index channels) {
    const Index c = block * kChannelBlock;
    const float* from = blocks + (n * images.blocks() + block) * images.plane * kChannelBlock;
    if (images.row == 0) {
      return kernels.to_planes(from, images.plane, static_cast<int>(channels), images.plane, false,
                               to + (n * images.c + c) * images.plane);
    }
    const Index lanes = std::min(kChannelBlock, images.row - c);
    float* at = to + n * images.plane * images.row + c;
    for (Index i = 0; i < images.plane; ++i, at += images.row, from += kChannelBlock) {
      copy_lanes(from, lanes, at);
    }
  });
}

}  // namespace convscope::block_sparse
