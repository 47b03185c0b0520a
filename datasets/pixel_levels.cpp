// SPDX-License-Identifier: Apache-2.0
// pixel_levels.cpp: the network's input for a pixel value: (value/255 - mean)/std, per channel.
#include "datasets/pixel_levels.h"

namespace convscope {

std::vector<PixelLevels> pixel_levels(const Dataset& dataset) {
  std::vector<PixelLevels> out;
  for (std::size_t c = 0; c < dataset.mean.size(); ++c) {
    PixelLevels& level = out.emplace_back();
    for (std::size_t value = 0; value < level.size(); ++value) {
      level[value] = static_cast<float>((static_cast<double>(value) / 255.0 - dataset.mean[c]) /
                                        dataset.std[c]);
    }
  }
  return out;
}

}  // namespace convscope
