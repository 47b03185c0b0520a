// SPDX-License-Identifier: Apache-2.0
// tiles.cpp: the dispatch of direct and pointwise convolution by instruction set: register tiles
// that read pixels in place, and copies that put zeros around an image or channels into the lanes.
#include "layers/conv2d/shared/tiles.h"

#include <algorithm>

#include "framework/ops/gemm/gemm_kernels.h"

namespace convscope {

constinit IsaTable<TileKernels> tile_kernels;

void channels_to_lanes(const float* from, std::int64_t from_row, std::int64_t channels,
                       std::int64_t count, std::int64_t width, float* to) {
  if (const auto kernel = tile_kernels.get().to_lanes; kernel != nullptr) {
    return kernel(from, from_row, channels, count, width, to);
  }
  if (channels < width) std::fill_n(to, count * width, 0.0f);
  gemm_kernels.get().transpose(from, from_row, channels, count, to, width);
}

}  // namespace convscope
