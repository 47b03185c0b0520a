// SPDX-License-Identifier: Apache-2.0
// sparse_points.cpp: conversion from lists of points to rows of sites.
#include "layers/sparse_rows/sparse_points.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace convscope {
namespace {

constexpr const char* kName = "sparse_points";

void check_shape(const Shape& x, const SiteGrid& grid) {
  CONVSCOPE_CHECK(x.rank() == 3 && x[2] > grid.rank, kName, "expected points [N,M,", grid.rank,
                  "+C], places ", grid.rank == 3 ? "(t,h,w)" : "(h,w)",
                  " and at least one feature, got ", x);
}

// Returns the coordinate as an integer; throws Error if it is not an integer.
std::int64_t whole(float value, std::int64_t sample, std::int64_t point) {
  const double v = static_cast<double>(value);
  CONVSCOPE_CHECK(v == std::floor(v) && std::abs(v) < 1e9, kName,
                  "expected places that are whole numbers, got ", v, " in point ", point,
                  " of sample ", sample);
  return static_cast<std::int64_t>(v);
}

struct Point {
  SitePlace place;
  const float* features;
};

std::vector<Point> points_of(const Tensor& x, const SiteGrid& grid) {
  std::vector<Point> out;
  const std::int64_t samples = x.dim(0), most = x.dim(1), width = x.dim(2);
  for (std::int64_t n = 0; n < samples; ++n) {
    const float* row = x.data<float>() + n * most * width;
    for (std::int64_t i = 0; i < most && row[0] != -1.0f; ++i, row += width) {
      Point point{.place = {.batch = n}, .features = row + grid.rank};
      for (int d = 0; d < grid.rank; ++d) {
        const std::int64_t at = whole(row[d], n, i);
        const auto axis = static_cast<std::size_t>(3 - grid.rank + d);
        CONVSCOPE_CHECK(at >= 0 && at < grid.extent[axis], kName,
                        "expected places inside of the grid ", grid.text(), ", got ", at,
                        " on axis ", d, " in point ", i, " of sample ", n);
        point.place.at[axis] = at;
      }
      out.push_back(point);
    }
  }
  return out;
}

}  // namespace

PointRows rows_of_points(const Tensor& x, const SiteGrid& grid, bool fill) {
  check_shape(x.shape(), grid);
  CONVSCOPE_CHECK(x.dtype() == DType::f32, kName, "expected x of type f32, got ", x.str());
  SiteGrid batch_grid = grid;
  batch_grid.batch = std::max<std::int64_t>(1, x.dim(0));
  const Tensor here = x.to(Device{});
  const std::vector<Point> points = points_of(here, batch_grid);
  const SparseSites keyed(std::vector<std::uint64_t>(), batch_grid);
  std::vector<std::uint64_t> keys(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) keys[i] = keyed.key(points[i].place);
  std::vector<std::size_t> order(points.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!std::ranges::is_sorted(keys)) {
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
      return keys[a] != keys[b] ? keys[a] < keys[b] : a < b;
    });
  }
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (keys[order[i]] != keys[order[i - 1]]) continue;
    fail(kName, cat("expected each place once, got ", site_text(batch_grid, points[order[i]].place),
                    " (batch first) twice"));
  }
  const auto channels = x.dim(2) - grid.rank;
  std::vector<std::uint64_t> all;
  if (fill) {
    all.resize(x.dim(0) == 0 ? 0 : static_cast<std::size_t>(batch_grid.all_places()));
    std::iota(all.begin(), all.end(), std::uint64_t{0});
  } else {
    for (const std::size_t i : order) all.push_back(keys[i]);
  }
  const Tensor rows = Tensor::zeros({static_cast<std::int64_t>(all.size()), channels});
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t row = fill ? static_cast<std::size_t>(keys[order[i]]) : i;
    std::copy_n(points[order[i]].features, channels,
                rows.data<float>() + static_cast<std::int64_t>(row) * channels);
  }
  return {std::make_shared<const SparseSites>(std::move(all), batch_grid), rows.to(x.device())};
}

Variable SparsePoints::forward(const Variable& x) {
  expect_eager(x.graph());
  const PointRows points = rows_of_points(x.value(), levels_->grid(0), fill_);
  levels_->begin(points.sites);
  return Variable(points.rows);
}

Shape SparsePoints::output_shape(const Shape& input) const {
  check_shape(input, levels_->grid(0));
  CONVSCOPE_CHECK(input[2] == levels_->rank() + channels_, kName, "expected points of ", channels_,
                  " features, got ", input);
  return shape_of_rows(*levels_, 0, input[0], channels_);
}

CONVSCOPE_REGISTER_LAYER(
    "sparse_points",
    {.doc = "lists of points [N,M,D+C] of a point data set to rows of sites",
     .fields =
         {{.name = "grid",
           .type = OptionType::integers,
           .doc = "size of the image or volume, [H,W] or [T,H,W] (default: the data set's)",
           .min = 1,
           .max = 1 << 20},
          {.name = "fill",
           .type = OptionType::boolean,
           .default_value = false,
           .doc = "make every grid cell a site, 0 where there is no point, as in a dense network"}},
     .build = [](const Options& options, const Shape& input,
                 LayerContext& context) -> std::shared_ptr<Module> {
       CONVSCOPE_CHECK(context.rows.levels == nullptr, kName,
                       "expected points, got the rows that '", context.rows.made_by, "' makes");
       std::vector<std::int64_t> sizes = context.point_grid;
       if (options.has("grid")) sizes = options.integers("grid");
       CONVSCOPE_CHECK(input.rank() == 3, kName, "expected points [N,M,D+C], got ", input,
                       "; 'to_sparse' takes images");
       CONVSCOPE_CHECK(sizes.size() == 2 || sizes.size() == 3, kName,
                       "expected 'grid' to be [H,W] or [T,H,W], got ", sizes.size(), " numbers");
       SiteGrid grid{.rank = static_cast<int>(sizes.size())};
       for (std::size_t d = 0; d < sizes.size(); ++d) grid.extent[3 - sizes.size() + d] = sizes[d];
       check_shape(input, grid);
       auto layer = std::make_shared<SparsePoints>(std::make_shared<SiteLevels>(grid),
                                                   input[2] - grid.rank, options.flag("fill"));
       context.had_rows = true;
       context.rows = {.levels = layer->levels(), .level = 0, .made_by = context.layer_name};
       return layer;
     }})

}  // namespace convscope
