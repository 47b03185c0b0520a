// SPDX-License-Identifier: Apache-2.0
// int8_depthwise.h: rows of a depthwise convolution on integers, the part that depends on the
// instruction set.
#pragma once

#include "layers/conv2d/int8/cpu/int8_tiles.h"

namespace convscope {

// A window is 4 `groups` neighbouring pixels of x, which `shared` neighbouring pixels of y read.
// Pixel d of them multiplies byte b of the window by tap b - d step of its row, and by 0 where
// there is none: w [rows, shared, groups, 16 channels, 4].
struct Int8Window {
  int shared = 1, groups = 1;
};

// y[j] = of start + sum over r < rows and taps of w x, for 16 channels and j < pixels.
struct Int8DepthwiseRow {
  Int8Window window;
  int rows = 0, step = 1;                   // of the kernel; pixels of x from one of y to the next
  std::int64_t pixels = 0;                  // of y, 16 channels each
  const std::uint8_t* const* in = nullptr;  // [rows]: pixel 0's first one, 16 bytes each
  const std::int8_t* w = nullptr;
  const std::int32_t* start = nullptr;  // [16]
  std::int64_t channel = 0;             // of lane 0, into the arrays of `outputs`
  const Int8Outputs* outputs = nullptr;
  void* out = nullptr;
  const void* residual = nullptr;
};

struct Int8DepthwiseKernels {
  int lanes = 0, weight_bytes = 0;  // as in Int8Kernels
  void (*row)(const Int8DepthwiseRow& row) = nullptr;
};

extern IsaTable<Int8DepthwiseKernels> int8_depthwise_kernels;

}  // namespace convscope
