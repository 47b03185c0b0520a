// SPDX-License-Identifier: Apache-2.0
// synthetic_shapes.h: surfaces, rooms and scans drawn by the program: a data set of points in 3-D
// that needs no files.
//
//   0 sphere  1 box  2 cylinder  3 cone  4 torus      surfaces, turned any way and stretched
//   5 stairs  6 room (floor, walls, furniture)        turned about the vertical
//   7 scan    what a turning laser scanner sees of ground, boxes and posts: rings with shadows
//
// A sample is so many points of a surface, moved by a normal error, some of them anywhere, in a
// grid of size^3 voxels (z up, along the axis T). Its one feature is 1. A voxel counts once, so a
// sample has at most as many sites as points. Sample i of a part is a pure function of (seed, part,
// i, size, points, noise): same places on any machine, with any number of threads.
#pragma once

#include <cstdint>

#include "datasets/dataset.h"

namespace convscope {

struct SyntheticShapesOptions {
  std::int64_t train_size = 2000;
  std::int64_t test_size = 400;
  std::uint64_t seed = 1;
  std::int64_t size = 32;      // voxels along each axis
  std::int64_t points = 1200;  // of a sample
  // Deviation of the error in voxels; the part of the points that lie anywhere is a fiftieth of it.
  double noise = 0.5;
};

CONVSCOPE_API DatasetSplits synthetic_shapes(const SyntheticShapesOptions& options);

}  // namespace convscope
