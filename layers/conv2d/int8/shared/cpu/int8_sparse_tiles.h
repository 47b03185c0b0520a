// SPDX-License-Identifier: Apache-2.0
// int8_sparse_tiles.h: register tiles of a convolution on int8 values with pruned weights. 16
// output channels share a list of quads, four neighbouring bytes of x each. A quad is in the list
// if at least one of the 16 channels keeps a weight of it.
#pragma once

#include "layers/conv2d/int8/shared/cpu/int8_tiles.h"

namespace convscope {

// The list of one block of 16 output channels, ordered by tap.
struct Int8Entries {
  const std::int32_t* segment = nullptr;  // [taps + 1], the first entry of each tap
  const std::int32_t* offset = nullptr;   // bytes of x from the pixel that the tap reads
  const std::int8_t* w = nullptr;         // [entry][16 channels][4], as in Int8Tiles
};

struct Int8SparseKernels {
  int pixels = 0;  // most pixels of a tile
  // Computes sum[j, k] = start[k] + sum of w[e, k, i] x[in_t + offset[e] + j in_step + i] over the
  // taps t of the tile, their entries e and i < 4. The epilogue is that of Int8Tiles. `w` of
  // Int8Tap is the index of the tap.
  void (*tile)(const Int8Tiles& tiles, const Int8Tile& tile, const Int8Entries& entries) = nullptr;
};

extern IsaTable<Int8SparseKernels> int8_sparse_kernels;

}  // namespace convscope
