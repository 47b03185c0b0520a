// SPDX-License-Identifier: Apache-2.0
// pixel_levels.h: the network's input for a pixel value: (value/255 - mean)/std, per channel. The
// loader and devices that normalise batches use this one table, so that the bits are the same.
#pragma once

#include <array>
#include <vector>

#include "datasets/dataset.h"

namespace convscope {

using PixelLevels = std::array<float, 256>;  // by pixel value
CONVSCOPE_API std::vector<PixelLevels> pixel_levels(const Dataset& dataset);

}  // namespace convscope
