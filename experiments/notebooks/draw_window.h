// SPDX-License-Identifier: Apache-2.0
// draw_window.h: draws what a convolution reads: a tile of outputs, and the pixels of one plane of
// x (zero padding included) that the tile needs.
#pragma once

#include <cstdint>
#include <string>

#include "framework/tensor.h"
#include "layers/conv2d/problem.h"

namespace convscope {

// Outputs p .. p + rows - 1 and q .. q + columns - 1 of a plane of y.
struct OutputTile {
  std::int64_t p = 0, q = 0;
  std::int64_t rows = 1, columns = 1;
};

// Draws a tile. The number in a pixel says how many outputs of the tile read the pixel. For a
// single output, the number is the tap (r,s) that multiplies the pixel. With `x` ([..,H,W] of f32,
// first plane), the number is the pixel's value. Throws an error for planes of x larger than 24 x
// 32 pixels with their padding, and for a tile outside y.
CONVSCOPE_API void draw_window(const Conv2dProblem& problem, const OutputTile& tile = {},
                               const Tensor& x = {}, const std::string& title = "");

// Returns the picture.
CONVSCOPE_API std::string window_svg(const Conv2dProblem& problem, const OutputTile& tile,
                                     const Tensor& x = {}, const std::string& title = "");

}  // namespace convscope
