// SPDX-License-Identifier: Apache-2.0
// tiles_parts.h: declares the functions of TileKernels that are defined outside of tiles_simd.cpp,
// for the tiles_*_simd.cpp files.
#pragma once

#include "framework/simd/simd.h"
#include "layers/conv2d/shared/tiles.h"

namespace convscope::CONVSCOPE_ISA {

using Index = std::int64_t;

void copy(const RowCopy& z, const float* from, float* to);
void copy_runs(const float* from, Index from_step, Index channels, const PixelRun* runs,
               Index count, Index step, float* to, Index to_step);
void weave(const float* from, Index from_step, Index width, Index step, float* to);
// Null where no separate kernel exists.
#if defined(CONVSCOPE_HAS_MASKS)
void to_lanes(const float* from, Index from_row, Index channels, Index count, Index width,
              float* to);
#else
inline constexpr decltype(TileKernels::to_lanes) to_lanes = nullptr;
#endif

}  // namespace convscope::CONVSCOPE_ISA
