// SPDX-License-Identifier: Apache-2.0
// blocked_weight_tiles.h: declares the weight tile of blocked_tiles.h, which is defined in
// blocked_weight_tiles_simd.cpp, for the table of kernels.
#pragma once

#include "layers/conv2d/shared/blocked_tiles.h"

namespace convscope::CONVSCOPE_ISA {

void blocked_weight_tile(const BlockedWeightTile& tile, int width);

}  // namespace convscope::CONVSCOPE_ISA
