// SPDX-License-Identifier: Apache-2.0
// sparse_points.h: conversion from lists of points, the format of data sets of points, to rows of
// sites.
//
// Shapes      x [N,M,D+C] -> y [n,C]: each sample is a list of M points. A point has D coordinates,
//             (h,w) or (t,h,w), and C features. In a list with fewer than M points, the row after
//             the last point begins with -1. n is the number of points in the batch
// Parameters  grid sizes of the image or volume, [H,W] or [T,H,W]; default: the grid of the data
//             set fill true: every pixel of the grid is a site, with 0 where there is no point. The
//             layers then compute the same as a dense network. Default false
// Errors      a coordinate that is not an integer, outside of the grid, or a place listed twice
// Usage       {type: sparse_points} as the first layer
#pragma once

#include <string>

#include "layers/sparse_rows/row_layers.h"

namespace convscope {

struct PointRows {
  SharedSites sites;
  Tensor rows;  // [n,C], in the order of the sites
};
// Returns the rows and sites, on the device of x. `grid` is the grid of one sample.
CONVSCOPE_API PointRows rows_of_points(const Tensor& x, const SiteGrid& grid, bool fill = false);

class CONVSCOPE_API SparsePoints final : public Module {
 public:
  SparsePoints(SharedLevels levels, std::int64_t channels, bool fill)
      : levels_(std::move(levels)), channels_(channels), fill_(fill) {}
  std::string kind() const override { return "sparse_points"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
  const SharedLevels& levels() const { return levels_; }

 private:
  SharedLevels levels_;
  std::int64_t channels_;
  bool fill_;
};

}  // namespace convscope
