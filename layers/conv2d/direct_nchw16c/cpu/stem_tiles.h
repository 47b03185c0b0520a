// SPDX-License-Identifier: Apache-2.0
// stem_tiles.h: the part of a first layer's forward pass that depends on the instruction set:
// register tiles of pixels x output channels over a list of products.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Computes out[j 16 + lane(k)] = start[k] + residual + sum (if relu, at least 0 and at most
// `most`), where the sum of
//   w[i width + k] in[at[i] + j in_step]
// runs over products i < products, for pixels j < pixels and channels k < width, with lane(k) = k /
// 16 out_block + k % 16. Lanes k >= `channels` are written as 0.
struct StemTile {
  int pixels = 0;
  int channels = 0;
  int products = 0;
  const std::int32_t* at = nullptr;
  const float* in = nullptr;
  const float* w = nullptr;
  const float* start = nullptr;  // [channels], or null: 0
  float* out = nullptr;
  std::int64_t out_block = 0;
  const float* residual = nullptr;  // as `out`, or null
  bool relu = false;
  float most = 0;  // for relu; infinity: no bound
};

struct StemKernels {
  int lanes = 0;   // of a vector
  int pixels = 0;  // most pixels of a tile
  // Runs tiles of `width` vectors of channels, 1 or 2, with in_step 1 or 2.
  void (*tile)(const StemTile& tile, int width, int in_step) = nullptr;
};

extern IsaTable<StemKernels> stem_kernels;

}  // namespace convscope
