// SPDX-License-Identifier: Apache-2.0
// block_sparse_images.h: copies of images between planes and blocks of 16 channels, for problems
// whose images lie as planes.
#pragma once

#include "framework/parallel.h"
#include "layers/conv2d/shared/weight_sums.h"
#include "layers/dispatch/layout/block_copies_simd.h"

namespace convscope::block_sparse {

using Index = std::int64_t;

struct Images {  // [N,C,H,W]
  Index n, c, plane;
  Index blocks() const { return ceil_div(c, kChannelBlock); }
  // Of the copy in blocks.
  Index floats() const { return piece_floats(n * blocks() * plane * kChannelBlock); }
};

// Calls copy(planes, block, channels) for each block of each image: where they begin, in floats.
template <class Copy>
void for_each_block(const Images& images, const Copy& copy) {
  parallel_for(images.n * images.blocks(), std::max<Index>(1, 4096 / images.plane),
               [&](Index begin, Index end) {
                 for (Index i = begin; i < end; ++i) {
                   const Index c = i % images.blocks() * kChannelBlock;
                   copy((i / images.blocks() * images.c + c) * images.plane,
                        i * images.plane * kChannelBlock,
                        static_cast<int>(std::min(kChannelBlock, images.c - c)));
                 }
               });
}

inline void to_blocks(const Images& images, const float* planes, float* blocks) {
  const BlockCopyKernels& kernels = block_copy_kernels.get();
  for_each_block(images, [&](Index plane, Index block, int channels) {
    kernels.to_block(planes + plane, images.plane, channels, images.plane, false, blocks + block);
  });
}

inline void to_planes(const Images& images, const float* blocks, float* planes) {
  const BlockCopyKernels& kernels = block_copy_kernels.get();
  for_each_block(images, [&](Index plane, Index block, int channels) {
    kernels.to_planes(blocks + block, images.plane, channels, images.plane, false, planes + plane);
  });
}

}  // namespace convscope::block_sparse
