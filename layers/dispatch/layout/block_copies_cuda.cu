// SPDX-License-Identifier: Apache-2.0
// block_copies_cuda.cu: f32 images between planes and blocks of 16 channels.
//
// Method    A thread copies four channels of a pixel, which are 16 bytes of the block. The four
//           threads of a pixel are adjacent. So a warp accesses 512 contiguous bytes of the block
//           and, in each of 16 planes, the 32 bytes of eight neighbouring pixels.
#include "framework/cuda/map.cuh"
#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/layout/block_copies.h"

namespace convscope {
namespace {

using Four = Pack<float, 4>;
constexpr std::int64_t kFours = kChannelBlock / 4;

template <bool kToBlocks>
__global__ void __launch_bounds__(kThreads)
    copy_fours(const float* from, std::int64_t channels, std::int64_t pixels, std::int64_t blocks,
               bool accumulate, float* to, std::int64_t count) {
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const std::int64_t block = at / kFours / pixels, n = block / blocks;
    const std::int64_t pixel = at / kFours - block * pixels;
    const std::int64_t c = (block - n * blocks) * kChannelBlock + at % kFours * 4;
    const std::int64_t plane = (n * channels + c) * pixels + pixel;
    if constexpr (kToBlocks) {
      auto* const out = reinterpret_cast<Four*>(to) + at;
      Four v;
#pragma unroll
      for (int l = 0; l < 4; ++l) v.v[l] = c + l < channels ? from[plane + l * pixels] : 0.0f;
      if (accumulate) {
        const Four before = *out;
#pragma unroll
        for (int l = 0; l < 4; ++l) v.v[l] = c + l < channels ? before.v[l] + v.v[l] : 0.0f;
      }
      *out = v;
    } else {
      const Four v = reinterpret_cast<const Four*>(from)[at];
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        if (c + l >= channels) continue;
        float& y = to[plane + l * pixels];
        y = accumulate ? y + v.v[l] : v.v[l];
      }
    }
  }
}

void copy_cuda(const BlockCopy& a) {
  const Shape& images = a.images;
  const std::int64_t pixels = images[2] * images[3], blocks = ceil_div(images[1], kChannelBlock);
  const std::int64_t count = images[0] * blocks * pixels * kFours;
  CONVSCOPE_CHECK(is_aligned(a.to_nchw16c ? a.to : a.from, 16), "convert_layout",
                  "expected blocks at an address that 16 divides, because a thread takes 16 bytes "
                  "at once, got other addresses");
  launch(a.to_nchw16c ? copy_fours<true> : copy_fours<false>, grid_of_packs(count), a.from,
         images[1], pixels, blocks, a.accumulate, a.to, count);
}

}  // namespace
CONVSCOPE_KERNEL(block_copy_kernel, cuda, copy_cuda)
}  // namespace convscope
