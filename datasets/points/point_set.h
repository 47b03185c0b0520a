// SPDX-License-Identifier: Apache-2.0
// point_set.h: samples that consist of points. A point has a place (a cell of a grid) and features.
//
// Samples have different numbers of points, but a batch is one tensor [N,M,D+C], like all other
// batches. Row i of a sample has the place of its point i, (h,w) or (t,h,w), then the C features of
// the point. M is the same for all batches of a set. Rows after the last point hold -1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/sample_order.h"
#include "framework/shape.h"

namespace convscope {

struct CONVSCOPE_API PointSet {
  std::vector<std::int64_t> grid;         // [H,W] or [T,H,W]
  std::int64_t channels = 1;              // C
  std::int64_t most = 1;                  // M: maximum number of points in a sample
  std::vector<std::int64_t> begin = {0};  // [N+1]: the first point of each sample
  std::vector<std::int32_t> places;       // (t H + h) W + w, ascending in each sample
  std::vector<float> features;            // [points, C]

  std::int64_t size() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  std::int64_t points(std::int64_t sample) const {
    return begin[static_cast<std::size_t>(sample + 1)] - begin[static_cast<std::size_t>(sample)];
  }
  std::int64_t places_of_grid() const;
  // Returns the mean fraction of a sample's grid cells that hold a point.
  double density() const;
  Shape sample_shape() const;  // [M,D+C]

  // Appends a sample; places need not be sorted. Throws kData with `name` for more than M points,
  // and for a place that is outside of the grid or given twice.
  void add(std::vector<std::int32_t> places_in, std::vector<float> features_in,
           const std::string& name);
  PointSet subset(const std::vector<std::int64_t>& samples) const;
  // Writes a sample as rows [M,D+C], augmented like an image of its grid: cropped from (dy,dx),
  // then mirrored along w. Omits points that leave the grid.
  void write(std::int64_t sample, const Augmentation& change, float* to) const;
};

}  // namespace convscope
