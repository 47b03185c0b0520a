// SPDX-License-Identifier: Apache-2.0
// int8_chain_stage.h: one convolution of a chain on int8 values (layers/conv2d/int8_chain.h) with
// its ReLU and 2x2 max-pool.
//
//   f32 image -> bytes -> sums -> largest of 2x2 -> codes -> sums -> largest -> codes in blocks
//
// Pool       A code grows with its sum, or falls where its scale is negative. So the code of the
//            largest (smallest) sum of a window is the largest code, and one sum in four is
//            rounded.
// Lanes      16 lanes of output channels are mostly empty where a layer has 6. So each stage puts
//            into the lanes the one of these that wastes fewer lanes:
//   columns    neighbouring pixels of a row; each channel's four weights apply to all of them. The
//              four bytes that one instruction multiplies are gathered once for all channels, as
//              planes of quads: four rows of a channel, or four channels of a pixel
//   channels   of y; x is stored as [H,W,C], so the S C bytes of a kernel row are neighbours
// Numerics   sums and codes equal those of the other algorithms in this folder, bit by bit.
#pragma once

#include <cstdint>

#include "layers/conv2d/int8/shared/cpu/int8_tiles.h"

namespace convscope {

// One convolution with its pool: all sizes and offsets that the kernels read.
struct Int8Stage {
  bool columns = false;  // the lanes hold columns of y; else its channels
  // x with its border: [C,H,W] for columns, else [H,W,C].
  std::int64_t c = 1, h = 1, w = 1;
  std::int64_t k = 1, r = 1, s = 1;
  std::int64_t p = 1, q = 1;  // size of pooled y: 2p x 2q sums
  // Used with `columns`: the bytes that the taps read, gathered into planes of quads [planes,
  // plane_rows, plane_pitch, 4].
  std::int64_t planes = 0, plane_rows = 0, plane_pitch = 0;
  const std::int64_t* plane_from = nullptr;  // [planes, 4]: offset in x of a plane's bytes
  const std::int64_t* tap = nullptr;         // [taps]: bytes from a pixel's quad
  std::int64_t taps = 0;                     // quads of a pixel
  std::int64_t row_quads = 0;                // channels: quads in a row of the kernel
  // Distance of two lines of codes. With `columns` the lines are [K rounded up to fours or blocks,
  // line_pitch].
  std::int64_t line_pitch = 0;
  // The packed weights. With `columns`: [groups of channels, taps, channels of a group]; else
  // [vectors of channels, R, row_quads, lanes].
  const std::int8_t* weights = nullptr;
  const std::int32_t* start = nullptr;  // start of the sums, by channel
  const std::int32_t* falls = nullptr;  // -1 where a code falls with its sum; null: nowhere
  const Int8Outputs* outputs = nullptr;
  // Layout of y: planes [K,H,W] or pixels [H,W,K] for the next stage, or blocks [K/16,P,Q,16].
  enum class Form : std::uint8_t { planes, pixels, blocks } y_form = Form::blocks;
  std::int64_t y_row = 0, y_plane = 0;  // distance of two rows, planes or blocks in bytes
};

struct Int8ChainKernels {
  int lanes = 1, weight_bytes = 4;
  int group = 1;  // channels in a pass over columns
  // Computes one image. `quads` and `line` are memory of the thread.
  void (*run)(const Int8Stage& z, const std::uint8_t* x, std::uint8_t* quads, std::uint8_t* line,
              std::uint8_t* y) = nullptr;
};

extern IsaTable<Int8ChainKernels> int8_chain_kernels;

}  // namespace convscope
