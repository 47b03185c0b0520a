// SPDX-License-Identifier: Apache-2.0
// points.cpp: the dispatch of the products that Winograd and FFT convolutions share: tiles are
// transformed to points, each point is a matrix product over channels, and the sums are transformed
// back.
#include "layers/conv2d/shared/points.h"

#include <algorithm>

namespace convscope {

constinit IsaTable<PointKernels> point_kernels;

void Planes::read(const PointKernels& kernels, const float* from, std::int64_t lanes,
                  std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns,
                  float* panel) const {
  const std::int64_t begin = std::clamp<std::int64_t>(-column, 0, columns);
  const std::int64_t end = std::clamp<std::int64_t>(w - column, begin, columns);
  const std::int64_t row_floats = columns * kernels.lanes;
  for (std::int64_t i = 0; i < rows; ++i, panel += row_floats) {
    const bool inside = row + i >= 0 && row + i < h && begin < end;
    std::fill(panel, panel + (inside ? begin * kernels.lanes : row_floats), 0.0f);
    if (!inside) continue;
    kernels.gather(from + (row + i) * w + column + begin, h * w, end - begin,
                   static_cast<int>(lanes), panel + begin * kernels.lanes);
    std::fill(panel + end * kernels.lanes, panel + row_floats, 0.0f);
  }
}

}  // namespace convscope
