// SPDX-License-Identifier: Apache-2.0
// cloud.cpp: converts a cloud of points to voxels.
#include "datasets/points/cloud.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/registry.h"

namespace convscope {
namespace {

constexpr const char* kAxes[] = {"x", "y", "z"};

[[noreturn]] void refuse(const std::string& why) { fail(ErrorKind::kData, "points", why); }

void check_box(const VoxelBox& box, int axes) {
  double places = 1;
  for (const std::int64_t size : box.grid) places *= static_cast<double>(size);
  CONVSCOPE_CHECK((box.grid.size() == 2 || box.grid.size() == 3) && places >= 1 &&
                      places < std::numeric_limits<std::int32_t>::max() &&
                      std::ranges::all_of(box.grid, [](std::int64_t s) { return s >= 1; }),
                  "points", "expected a grid [H,W] or [T,H,W] of fewer than 2^31 voxels, got ",
                  box.grid.size(), " sizes and ", places, " voxels");
  CONVSCOPE_CHECK(box.size > 0 && std::isfinite(box.size), "points",
                  "expected a voxel size above 0, got ", box.size);
  if (static_cast<int>(box.grid.size()) == axes) return;
  refuse(cat("expected a grid of ", axes, " axes because the points have ", axes, ", got ",
             box.grid.size()));
}

// Computes the indices of the voxel that contains a point, x first. Returns false for a point
// outside of the box.
bool voxel_of(const Cloud& cloud, const VoxelBox& box, std::int64_t point,
              std::array<std::int64_t, 3>& out) {
  bool inside = true;
  for (int d = 0; d < cloud.axes; ++d) {
    const double at = cloud.positions[static_cast<std::size_t>(point * cloud.axes + d)];
    if (!std::isfinite(at)) {
      refuse(cat(cloud.name, ": expected finite coordinates, got ", kAxes[d], " = ", at,
                 " of point ", point, "; remove such points from the file"));
    }
    const std::size_t axis = box.grid.size() - 1 - static_cast<std::size_t>(d);
    const double low = box.low[static_cast<std::size_t>(d)];
    const double voxel = std::floor((at - low) / box.size);
    if (voxel >= 0 && voxel < static_cast<double>(box.grid[axis])) {
      out[static_cast<std::size_t>(d)] = static_cast<std::int64_t>(voxel);
      continue;
    }
    inside = false;
    if (box.outside == OutsidePoints::clip) continue;
    refuse(cat(cloud.name, ": expected ", kAxes[d], " from ", low, " to ",
               low + box.size * static_cast<double>(box.grid[axis]), " because the grid has ",
               box.grid[axis], " voxels of size ", box.size, " there, got ", at, " of point ",
               point, "; make the grid larger, or leave such points out with 'outside: clip'"));
  }
  return inside;
}

}  // namespace

Cloud Cloud::with_features(const std::vector<std::string>& wanted) const {
  std::vector<std::size_t> columns;
  for (const std::string& one : wanted) {
    const auto at = std::ranges::find(names, one);
    if (at == names.end()) {
      const std::string near = nearest_word(one, names);
      refuse(cat(name, ": expected a property '", one, "', got ",
                 names.empty() ? "none" : join(names),
                 near.empty() ? "" : cat("; did you mean '", near, "'?")));
    }
    columns.push_back(static_cast<std::size_t>(at - names.begin()));
  }
  Cloud out = *this;
  out.names = wanted;
  out.features.clear();
  for (std::size_t i = 0; i < static_cast<std::size_t>(size()); ++i) {
    for (const std::size_t column : columns) {
      out.features.push_back(features[i * names.size() + column]);
    }
  }
  return out;
}

Voxels voxels_of(const Cloud& cloud, const VoxelBox& box) {
  check_box(box, cloud.axes);
  const std::size_t given = cloud.names.size(), width = std::max<std::size_t>(1, given);
  struct Inside {
    std::int32_t place;
    std::int64_t point;
  };
  std::vector<Inside> inside;
  for (std::int64_t i = 0; i < cloud.size(); ++i) {
    std::array<std::int64_t, 3> at = {0, 0, 0};
    const bool is_inside = voxel_of(cloud, box, i, at);
    for (std::size_t c = 0; c < given; ++c) {
      const float value = cloud.features[static_cast<std::size_t>(i) * given + c];
      if (std::isfinite(value)) continue;
      refuse(cat(cloud.name, ": expected finite features, got ", cloud.names[c], " = ", value,
                 " of point ", i));
    }
    if (!is_inside) continue;
    std::int64_t place = 0;
    for (std::size_t axis = 0; axis < box.grid.size(); ++axis) {
      place = place * box.grid[axis] + at[box.grid.size() - 1 - axis];
    }
    inside.push_back({static_cast<std::int32_t>(place), i});
  }
  std::ranges::sort(inside, [](const Inside& a, const Inside& b) {
    return a.place != b.place ? a.place < b.place : a.point < b.point;
  });
  Voxels out;
  std::vector<double> sums(width);
  for (std::size_t i = 0; i < inside.size();) {
    std::ranges::fill(sums, 0.0);
    std::size_t end = i;
    for (; end < inside.size() && inside[end].place == inside[i].place; ++end) {
      const std::size_t point = static_cast<std::size_t>(inside[end].point);
      for (std::size_t c = 0; c < width; ++c) {
        sums[c] += given == 0 ? 1.0 : static_cast<double>(cloud.features[point * given + c]);
      }
    }
    out.places.push_back(inside[i].place);
    for (const double sum : sums) {
      out.features.push_back(static_cast<float>(sum / static_cast<double>(end - i)));
    }
    i = end;
  }
  return out;
}

}  // namespace convscope
