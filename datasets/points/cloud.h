// SPDX-License-Identifier: Apache-2.0
// cloud.h: a cloud of points as a file has it, and the voxels that it becomes.
//
//   voxel of a point = floor((position - low) / size), x along w, y along h, z along t
//
// A voxel is there when a point lies in it; its features are the means of those of its points, in
// double. A cloud without features gets one: 1.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct Cloud {
  std::string name;                       // in errors: the file
  int axes = 3;                           // 2: (x,y), 3: (x,y,z)
  std::vector<double> positions = {};     // [n, axes]
  std::vector<std::string> names = {};    // of the features: "intensity"
  std::vector<float> features = {};       // [n, names]
  std::vector<std::int32_t> labels = {};  // of the points, or none

  std::int64_t size() const { return static_cast<std::int64_t>(positions.size()) / axes; }
  // With these features alone, in this order; an error of kind kData that names what is missing.
  CONVSCOPE_API Cloud with_features(const std::vector<std::string>& wanted) const;
};

enum class OutsidePoints { refuse, clip };

struct VoxelBox {
  std::vector<std::int64_t> grid;         // voxels: [H,W] or [T,H,W]
  std::array<double, 3> low = {0, 0, 0};  // x, y, z where the grid begins, in units of the file
  double size = 1;                        // of a voxel, in the same units
  OutsidePoints outside = OutsidePoints::refuse;  // clip: leave points outside out
};

struct Voxels {
  std::vector<std::int32_t> places;  // (t H + h) W + w, ascending
  std::vector<float> features;       // [places, max(1, names)]
};

// Errors of kind kData name file, point and value: a coordinate or feature that is no finite
// number, a point outside of the box.
CONVSCOPE_API Voxels voxels_of(const Cloud& cloud, const VoxelBox& box);

}  // namespace convscope
