// SPDX-License-Identifier: Apache-2.0
// ink_points.cpp: the ink pixels of grey images as points in 2-D.
#include "datasets/points/ink_points.h"

namespace convscope {

Dataset ink_points(const Dataset& images, std::int64_t threshold, const std::string& name) {
  CONVSCOPE_CHECK(images.images.defined() && images.images.dim(1) == 1, name,
                  "expected grey images u8 [N,1,H,W], got ", images.images.str());
  CONVSCOPE_CHECK(threshold >= 0 && threshold < 255, name, "expected a threshold of 0 to 254, got ",
                  threshold);
  auto set = std::make_shared<PointSet>();
  set->grid = {images.images.dim(2), images.images.dim(3)};
  const std::int64_t pixels = set->grid[0] * set->grid[1];
  set->most = pixels;
  const std::uint8_t* pixel = images.images.data<std::uint8_t>();
  for (std::int64_t n = 0; n < images.size(); ++n, pixel += pixels) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      if (pixel[i] <= threshold) continue;
      set->places.push_back(static_cast<std::int32_t>(i));
      set->features.push_back(static_cast<float>(pixel[i]) / 255.0f);
    }
    set->begin.push_back(static_cast<std::int64_t>(set->places.size()));
  }
  Dataset out;
  out.name = name;
  out.labels = images.labels;
  out.classes = images.classes;
  out.class_names = images.class_names;
  out.points = std::move(set);
  return out;
}

OptionField ink_threshold_field(std::int64_t threshold) {
  return {.name = "threshold",
          .type = OptionType::integer,
          .default_value = threshold,
          .doc = "threshold: pixels above it (0 to 255) are points",
          .min = 0,
          .max = 254};
}

}  // namespace convscope
