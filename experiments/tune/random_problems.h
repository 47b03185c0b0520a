// SPDX-License-Identifier: Apache-2.0
// random_problems.h: the designed sets of problems of `convscope tune`: sizes as in networks of the
// last ten years and around them, each kind as often as its kernels need samples.
#pragma once

#include <random>

#include "layers/conv2d/problem.h"
#include "layers/deform_conv2d/problem.h"

namespace convscope {

// Draws a convolution of f32, or of integers or block-sparse weights; images in NCHW or NCHW16c. On
// a GPU also of TF32, f16 and bf16; images in NCHW or NHWC; larger sizes.
CONVSCOPE_API Conv2dProblem random_conv2d(std::mt19937_64& random, DeviceType device);
CONVSCOPE_API DeformConv2dProblem random_deform_conv2d(std::mt19937_64& random, DeviceType device);
// Draws the text of a point cloud's problem (experiments/bench/sparse).
CONVSCOPE_API std::string random_cloud(std::mt19937_64& random, DeviceType device);

}  // namespace convscope
