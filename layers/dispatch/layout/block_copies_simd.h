// SPDX-License-Identifier: Apache-2.0
// block_copies_simd.h: f32 images between planes [C][H W] and blocks [H W][16] of 16 channels.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// A call copies between `channels` planes (1..16) and one block. `plane` is the distance of two
// planes in floats. The destination is overwritten, or the copied values are added to it. Lanes
// after the last channel become 0.
struct BlockCopyKernels {
  void (*to_block)(const float* planes, std::int64_t plane, int channels, std::int64_t pixels,
                   bool add, float* block);
  void (*to_planes)(const float* block, std::int64_t plane, int channels, std::int64_t pixels,
                    bool add, float* planes);
};
extern IsaTable<BlockCopyKernels> block_copy_kernels;

}  // namespace convscope
