// SPDX-License-Identifier: Apache-2.0
// cloud.h: a cloud of points as stored in a file, and its conversion to voxels.
//
//   voxel of a point = floor((position - low) / size), x along w, y along h, z along t
//
// A voxel is active when a point is inside. Its features are the means over its points, in double.
// A cloud without features gets one feature: 1.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct Cloud {
  std::string name;                       // the file, for errors
  int axes = 3;                           // 2: (x,y), 3: (x,y,z)
  std::vector<double> positions = {};     // [n, axes]
  std::vector<std::string> names = {};    // of the features, e.g. "intensity"
  std::vector<float> features = {};       // [n, names]
  std::vector<std::int32_t> labels = {};  // of the points; may be empty

  std::int64_t size() const { return static_cast<std::int64_t>(positions.size()) / axes; }
  // Returns a copy with only the features `wanted`, in this order. Throws kData with the missing
  // names.
  CONVSCOPE_API Cloud with_features(const std::vector<std::string>& wanted) const;
};

enum class OutsidePoints { refuse, clip };

struct VoxelBox {
  std::vector<std::int64_t> grid;         // voxels: [H,W] or [T,H,W]
  std::array<double, 3> low = {0, 0, 0};  // x, y, z of the grid's origin, in units of the file
  double size = 1;                        // of a voxel, in the same units
  OutsidePoints outside = OutsidePoints::refuse;  // clip: omit points outside
};

struct Voxels {
  std::vector<std::int32_t> places;  // (t H + h) W + w, ascending
  std::vector<float> features;       // [places, max(1, names)]
};

// Converts a cloud. Throws kData with file, point and value for a coordinate or feature that is not
// finite, and for a point outside of the box.
CONVSCOPE_API Voxels voxels_of(const Cloud& cloud, const VoxelBox& box);

}  // namespace convscope
