// SPDX-License-Identifier: Apache-2.0
// blocked_weight_tiles.h: declares the function that computes a BlockedWeightTile
// (blocked_tiles.h). blocked_weight_tiles_simd.cpp defines it; the table of kernels refers to it.
#pragma once

#include "layers/conv2d/shared/blocked_tiles.h"

namespace convscope::CONVSCOPE_ISA {

void blocked_weight_tile(const BlockedWeightTile& tile, int width);

}  // namespace convscope::CONVSCOPE_ISA
