// SPDX-License-Identifier: Apache-2.0
// nchw16c_weight_tiles.h: declares the function that computes a Nchw16cWeightTile
// (nchw16c_tiles.h). nchw16c_weight_tiles_simd.cpp defines it; the table of kernels refers to it.
#pragma once

#include "layers/conv2d/shared/nchw16c_tiles.h"

namespace convscope::CONVSCOPE_ISA {

void nchw16c_weight_tile(const Nchw16cWeightTile& tile, int width);

}  // namespace convscope::CONVSCOPE_ISA
