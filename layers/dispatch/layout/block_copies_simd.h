// SPDX-License-Identifier: Apache-2.0
// block_copies_simd.h: f32 images between planes [C][H W] and blocks [H W][16] of 16 channels.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// `channels` planes (1..16), `plane` floats from one to the next, and one block. The content of the
// destination is replaced, or added to. Lanes after the last channel become 0.
struct BlockCopyKernels {
  void (*to_block)(const float* planes, std::int64_t plane, int channels, std::int64_t pixels,
                   bool add, float* block);
  void (*to_planes)(const float* block, std::int64_t plane, int channels, std::int64_t pixels,
                    bool add, float* planes);
};
extern IsaTable<BlockCopyKernels> block_copy_kernels;

}  // namespace convscope
