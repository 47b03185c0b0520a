// SPDX-License-Identifier: Apache-2.0
// synthetic_shapes.h: surfaces, rooms and scans drawn by the program: a 3-D point data set without
// files.
//
//   0 sphere  1 box  2 cylinder  3 cone  4 torus      surfaces, stretched and rotated at random
//   5 stairs  6 room (floor, walls, furniture)        rotated about the vertical
//   7 scan    a rotating laser scanner's view of ground, boxes and posts: rings with shadows
//
// A sample is made of points on a surface with normally distributed errors, plus some random
// points. The points are in a grid of size^3 voxels (z is up, along the axis T). The only feature
// is 1. Points in the same voxel count once, so a sample has at most as many sites as points.
// Sample i of a part is a pure function of (seed, part, i, size, points, noise): its points are in
// the same voxels on any machine, with any number of threads.
#pragma once

#include <cstdint>

#include "datasets/dataset.h"

namespace convscope {

struct SyntheticShapesOptions {
  std::int64_t train_size = 2000;
  std::int64_t test_size = 400;
  std::uint64_t seed = 1;
  std::int64_t size = 32;      // voxels along each axis
  std::int64_t points = 1200;  // per sample
  // Standard deviation of the error in voxels. The fraction of random points is noise / 50.
  double noise = 0.5;
};

CONVSCOPE_API DatasetSplits synthetic_shapes(const SyntheticShapesOptions& options);

}  // namespace convscope
