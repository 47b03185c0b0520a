// SPDX-License-Identifier: Apache-2.0
// synthetic_segmentation.h: colour images of shapes with a class for each pixel: a data set without
// files.
//
//   0 background  1 disc  2 square  3 triangle  4 ring
//
// An image has one to four shapes of random size, position, rotation and colour on a background
// with a gradient of colour, and normally distributed noise. Later shapes cover earlier ones. The
// colour of a shape does not depend on its class, and a disc differs from a ring by its centre
// only. Shapes of equal size have about equal areas. So a network has to see the outline of a
// shape.
// Sample i of a part is a pure function of (seed, part, i, image size): the same bytes on any
// machine, with any number of threads.
#pragma once

#include <cstdint>

#include "datasets/dataset.h"

namespace convscope {

struct SyntheticSegmentationOptions {
  std::int64_t train_size = 2000;
  std::int64_t test_size = 500;
  std::uint64_t seed = 1;
  std::int64_t image_size = 32;  // pixels
};

CONVSCOPE_API DatasetSplits synthetic_segmentation(const SyntheticSegmentationOptions& options);

}  // namespace convscope
