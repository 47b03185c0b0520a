// SPDX-License-Identifier: Apache-2.0
// int8_depthwise.h: the functions for rows of a depthwise convolution on int8 values that depend on
// the instruction set.
#pragma once

#include "layers/conv2d/int8/shared/cpu/int8_tiles.h"

namespace convscope {

// A window is 4 * groups neighbouring pixels of x, from which `shared` neighbouring pixels of y are
// computed. For pixel d of y, byte b of the window is multiplied by tap b - d step of the kernel
// row, or by 0 if there is no such tap. The weights are w [rows, shared, groups, 16 channels, 4].
struct Int8Window {
  int shared = 1, groups = 1;
};

// A buffer with rows of x and of its border. A pixel has 16 channels of one byte.
struct Int8PaddedRows {
  const std::uint8_t* plane = nullptr;  // [h, w, 16]
  std::int64_t h = 0, w = 0;
  std::int64_t first = 0, count = 0;  // rows of x, including those outside of the image
  std::int64_t left = 0, width = 0;   // pixels before a row; pixels of a buffer row
  std::uint8_t offset = 0;            // 128 where x is signed: added to codes, also in the border
  std::uint8_t* to = nullptr;
};

// Computes y[p,j] from start + sum over r < rows and taps of w x, for 16 channels, p < height, j <
// pixels.
struct Int8DepthwiseRows {
  Int8Window window;
  int rows = 0;                             // rows of the kernel
  int step = 1;                             // pixels of x from one pixel of y to the next
  std::int64_t height = 0, pixels = 0;      // size of y, 16 channels a pixel
  const std::uint8_t* in = nullptr;         // first pixel of row 0
  std::int64_t row_step = 0, tap_step = 0;  // bytes from one row of y to the next; of r
  const std::int8_t* w = nullptr;
  const std::int32_t* start = nullptr;  // [16]
  std::int64_t channel = 0;             // channel of lane 0 in the arrays of `outputs`
  const Int8Outputs* outputs = nullptr;
  void* out = nullptr;
  const void* residual = nullptr;
};

struct Int8DepthwiseKernels {
  int lanes = 0, weight_bytes = 0;  // as in Int8Kernels
  void (*pad)(const Int8PaddedRows& rows) = nullptr;
  void (*rows)(const Int8DepthwiseRows& rows) = nullptr;
};

extern IsaTable<Int8DepthwiseKernels> int8_depthwise_kernels;

}  // namespace convscope
