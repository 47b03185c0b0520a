// SPDX-License-Identifier: Apache-2.0
// int8_sparse_tiles.h: register tiles of a convolution on integers whose weights are a list: 16
// output channels walk along the quads (four neighbouring bytes of x) that any of them keeps.
#pragma once

#include "layers/conv2d/int8/cpu/int8_tiles.h"

namespace convscope {

// The list of one block of 16 output channels, in the order of the taps.
struct Int8Entries {
  const std::int32_t* segment = nullptr;  // [taps + 1], where the entries of a tap begin
  const std::int32_t* offset = nullptr;   // bytes of x from where the tap of a pixel reads
  const std::int8_t* w = nullptr;         // [entry][16 channels][4], as Int8Tiles says
};

struct Int8SparseKernels {
  int pixels = 0;  // most of a tile
  // sum[j, k] = start[k] + sum of w[e, k, i] x[in_t + offset[e] + j in_step + i] over the taps t of
  // the tile, their entries e and i < 4; y is made of it as Int8Tiles says. `w` of Int8Tap is the
  // number of the tap.
  void (*tile)(const Int8Tiles& tiles, const Int8Tile& tile, const Int8Entries& entries) = nullptr;
};

extern IsaTable<Int8SparseKernels> int8_sparse_kernels;

}  // namespace convscope
