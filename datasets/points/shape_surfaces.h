// SPDX-License-Identifier: Apache-2.0
// shape_surfaces.h: random points on the surfaces of the set synthetic_shapes.
#pragma once

#include <vector>

#include "framework/export.h"
#include "framework/random.h"

namespace convscope {

struct SpacePoint {
  double x = 0, y = 0, z = 0;
};

constexpr int kShapeClasses = 8;
constexpr const char* kShapeNames[kShapeClasses] = {"sphere", "box",    "cylinder", "cone",
                                                    "torus",  "stairs", "room",     "scan"};

// Returns `count` points of one object of a class, in a cube from -1 to 1, with z up.
CONVSCOPE_API std::vector<SpacePoint> points_of_shape(int shape, int count, Generator& random);

}  // namespace convscope
