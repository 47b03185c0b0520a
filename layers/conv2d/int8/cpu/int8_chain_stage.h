// SPDX-License-Identifier: Apache-2.0
// int8_chain_stage.h: one convolution of a chain on integers (layers/conv2d/int8_chain.h) with its
// ReLU and 2x2 max-pool.
//
//   f32 image -> bytes -> sums -> largest of 2x2 -> codes -> sums -> largest -> codes in blocks
//
// Pool       A code grows with its sum (falls, where its scale is negative), so the code of the
//            largest sum of a window is the largest code: one sum in four is rounded.
// Lanes      16 lanes of output channels are mostly empty where a layer has 6. So a stage puts into
//            the lanes whatever wastes less of them:
//   columns    neighbouring pixels of a row; each channel's four weights meet all of them. The
//              four bytes that one instruction multiplies are gathered once for all channels, as
//              planes of quads: four rows of a channel, or four channels of a pixel
//   channels   of y; x lies as [H,W,C], so that the S C bytes of a row of the kernel are neighbours
// Numerics   sums and codes are those of the cards of this room, bit by bit.
#pragma once

#include <cstdint>

#include "layers/conv2d/int8/cpu/int8_tiles.h"

namespace convscope {

// One convolution with its pool, all sizes and places ready. Plain data: kernels read it.
struct Int8Stage {
  bool columns = false;  // of y lie in the lanes; else its channels
  // x with its border: [C,H,W] for columns, else [H,W,C].
  std::int64_t c = 1, h = 1, w = 1;
  std::int64_t k = 1, r = 1, s = 1;
  std::int64_t p = 1, q = 1;  // of y, pooled: 2p x 2q sums
  // Columns: planes of quads [planes, plane_rows, plane_pitch, 4], and what the taps read of them.
  std::int64_t planes = 0, plane_rows = 0, plane_pitch = 0;
  const std::int64_t* plane_from = nullptr;  // [planes, 4]: where in x a plane's bytes begin
  const std::int64_t* tap = nullptr;         // [taps]: bytes from a pixel's quad
  std::int64_t taps = 0;                     // quads of a pixel
  std::int64_t row_quads = 0;                // channels: of a row of the kernel
  // The line of codes in the making: [K in fours or blocks, line_pitch] for columns.
  std::int64_t line_pitch = 0;
  // columns: [groups of channels, taps, channels]; else [vectors of channels, R, row_quads, lanes].
  const std::int8_t* weights = nullptr;
  const std::int32_t* start = nullptr;  // of the sums, by channel
  const std::int32_t* falls = nullptr;  // -1 where a code falls with its sum; null: nowhere
  const Int8Outputs* outputs = nullptr;
  // y: planes [K,H,W] or pixels [H,W,K] for the next stage, or blocks [K/16,P,Q,16].
  enum class Form : std::uint8_t { planes, pixels, blocks } y_form = Form::blocks;
  std::int64_t y_row = 0, y_plane = 0;  // bytes from one row, plane or block to the next
};

struct Int8ChainKernels {
  int lanes = 1, weight_bytes = 4;
  int group = 1;  // channels of a pass over columns
  // One image. quads, line: memory of the thread.
  void (*run)(const Int8Stage& z, const std::uint8_t* x, std::uint8_t* quads, std::uint8_t* line,
              std::uint8_t* y) = nullptr;
};

extern IsaTable<Int8ChainKernels> int8_chain_kernels;

}  // namespace convscope
