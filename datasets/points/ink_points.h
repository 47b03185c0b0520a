// SPDX-License-Identifier: Apache-2.0
// ink_points.h: the pixels of grey images that hold ink, as points in 2-D.
#pragma once

#include "datasets/dataset.h"

namespace convscope {

// A point for each pixel above `threshold` (0 to 254) of images u8 [N,1,H,W]; its one feature is
// the pixel / 255. Labels and names are kept; the set is called `name`.
CONVSCOPE_API Dataset ink_points(const Dataset& images, std::int64_t threshold,
                                 const std::string& name);
// The option `threshold`.
CONVSCOPE_API OptionField ink_threshold_field(std::int64_t threshold);

}  // namespace convscope
