// SPDX-License-Identifier: Apache-2.0
// ink_points.h: the ink pixels of grey images as points in 2-D.
#pragma once

#include "datasets/dataset.h"

namespace convscope {

// Returns a data set of points, with one point for each pixel above `threshold` (0 to 254) of the
// images u8 [N,1,H,W]. The only feature of a point is the pixel / 255. Keeps labels and class
// names; the set is called `name`.
CONVSCOPE_API Dataset ink_points(const Dataset& images, std::int64_t threshold,
                                 const std::string& name);
// Returns the option `threshold`.
CONVSCOPE_API OptionField ink_threshold_field(std::int64_t threshold);

}  // namespace convscope
