// SPDX-License-Identifier: Apache-2.0
// image_rows.cpp: conversion from rows of sites to an image or volume and back.
#include "layers/sparse_rows/image_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/graph/simple_operation.h"
#include "framework/parallel.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> rows_to_image_kernel{
    "to_dense"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> image_to_rows_kernel{
    "to_sparse"};

namespace {

// (sample, place) of each site.
Tensor places_on(const SparseSites& sites, Device device) {
  SiteGrid one = sites.grid();
  one.batch = 1;
  CONVSCOPE_CHECK(one.all_places() < std::numeric_limits<std::int32_t>::max(), "to_dense",
                  "expected a grid of fewer than 2^31 places a sample, got ", one.text());
  const auto places = static_cast<std::uint64_t>(one.all_places());
  const Tensor out = Tensor::empty({sites.count(), 2}, DType::i32);
  auto* to = out.data<std::int32_t>();
  for (const std::uint64_t key : sites.keys()) {
    *to++ = static_cast<std::int32_t>(key / places);
    *to++ = static_cast<std::int32_t>(key % places);
  }
  return out.to(device);
}

// Copies rows [n,C] to an image, or the pixels of an image to rows.
class SiteCopy final : public SimpleOperation {
 public:
  SiteCopy(bool to_image, const SparseSites& sites, Device device)
      : SimpleOperation(to_image ? "to_dense" : "to_sparse"),
        to_image_(to_image),
        grid_(sites.grid()),
        at_(places_on(sites, device)) {}

  TensorDesc bind(Graph& graph) override {
    expect_eager(&graph);
    return SimpleOperation::bind(graph);
  }
  Shape output_shape(const std::vector<Shape>& all) const override {
    const Shape& x = all[0];
    if (!to_image_) {
      CONVSCOPE_CHECK(grid_of_image("to_sparse", x) == grid_, "to_sparse",
                      "expected sites in the grid of x ", x, ", got ", grid_.text());
      return {at_.dim(0), x[1]};
    }
    CONVSCOPE_CHECK(x.rank() == 2 && x[0] == at_.dim(0), "to_dense", "expected x [", at_.dim(0),
                    ",C], a row for each site, got ", x);
    return grid_.dense_shape(x[1]);
  }
  void run(const Forward& a) const override { copy(a.x[0], a.y, to_image_); }
  void run(const Backward& a) const override { copy(a.dy, a.dx[0], !to_image_); }

 private:
  void copy(const Tensor& from, const Tensor& to, bool to_image) const {
    if (to_image) to.zero();
    if (from.numel() == 0 || to.numel() == 0) return;
    (to_image ? rows_to_image_kernel : image_to_rows_kernel).get(to.device())(from, at_, to);
  }

  bool to_image_;
  SiteGrid grid_;
  Tensor at_;
};

// Finds the occupied places with all threads; returns them as a list in order.
template <class T>
std::vector<std::uint64_t> keys_of(const Tensor& x, double background, double threshold) {
  const std::int64_t samples = x.dim(0), channels = x.dim(1);
  const std::int64_t places = x.numel() / std::max<std::int64_t>(1, samples * channels);
  const T* const from = x.data<T>();
  std::vector<char> full(static_cast<std::size_t>(samples * places), 0);
  parallel_for(samples, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      char* const to = full.data() + n * places;
      for (std::int64_t c = 0; c < channels; ++c) {
        const T* const plane = from + (n * channels + c) * places;
        for (std::int64_t p = 0; p < places; ++p) {
          // Not "<=": a NaN counts as occupied.
          if (!(std::abs(static_cast<double>(plane[p]) - background) <= threshold)) to[p] = 1;
        }
      }
    }
  });
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < full.size(); ++i) {
    if (full[i] != 0) out.push_back(i);
  }
  return out;
}

}  // namespace

SiteGrid grid_of_image(const char* operation, const Shape& x) {
  CONVSCOPE_CHECK(x.rank() == 4 || x.rank() == 5, operation,
                  "expected an image [N,C,H,W] or a volume [N,C,T,H,W], got ", x);
  SiteGrid grid{.rank = x.rank() - 2, .batch = std::max<std::int64_t>(1, x[0])};
  for (int d = 0; d < grid.rank; ++d) {
    grid.extent[static_cast<std::size_t>(3 - grid.rank + d)] = x[2 + d];
  }
  return grid;
}

Variable image_of_rows(const Variable& x, const SparseSites& sites) {
  return apply(std::make_unique<SiteCopy>(/*to_image=*/true, sites, x.device()), {x});
}

Variable rows_of_image(const Variable& x, const SparseSites& sites) {
  return apply(std::make_unique<SiteCopy>(/*to_image=*/false, sites, x.device()), {x});
}

SharedSites sites_of_image(const Tensor& x, double background, double threshold) {
  constexpr const char* kName = "to_sparse";
  CONVSCOPE_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, kName,
                  "expected x of type f32 or f64, got ", x.str());
  const SiteGrid grid = grid_of_image(kName, x.shape());
  const Tensor here = x.to(Device{});
  return std::make_shared<const SparseSites>(here.dtype() == DType::f64
                                                 ? keys_of<double>(here, background, threshold)
                                                 : keys_of<float>(here, background, threshold),
                                             grid);
}

Variable ToDense::forward(const Variable& x) {
  check_rows("to_dense", *levels_, level_, x.value());
  return image_of_rows(x, *levels_->sites(level_));
}

Shape ToDense::output_shape(const Shape& input) const {
  check_shape_of_rows("to_dense", *levels_, level_, -1, input);
  return input;
}

Variable ToSparse::forward(const Variable& x) {
  expect_eager(x.graph());
  levels_->begin(sites_of_image(x.value(), background_, threshold_));
  return rows_of_image(x, *levels_->sites(0));
}

Shape ToSparse::output_shape(const Shape& input) const {
  check_shape_of_rows("to_sparse", *levels_, 0, -1, input);
  return input;
}

CONVSCOPE_REGISTER_LAYER("to_dense",
                         {.doc = "rows of sites to a dense image, 0 where there is no site",
                          .fields = {},
                          .build = [](const Options&, const Shape& input,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            expect_rows("to_dense", input, context);
                            auto layer =
                                std::make_shared<ToDense>(context.rows.levels, context.rows.level);
                            context.rows = {};
                            return layer;
                          },
                          .takes_rows = true})
CONVSCOPE_REGISTER_LAYER(
    "to_sparse",
    {.doc = "from an image to rows of its active sites",
     .fields = {{.name = "background",
                 .type = OptionType::number,
                 .default_value = 0.0,
                 .doc = "value of an empty place; pixels of data sets are normalised"},
                {.name = "threshold",
                 .type = OptionType::number,
                 .default_value = 0.0,
                 .doc = "least distance of some channel of a site from the background",
                 .min = 0}},
     .build = [](const Options& options, const Shape& input,
                 LayerContext& context) -> std::shared_ptr<Module> {
       const SiteGrid grid = grid_of_image("to_sparse", input);
       context.had_rows = true;
       context.rows = {
           .levels = std::make_shared<SiteLevels>(grid), .level = 0, .made_by = context.layer_name};
       return std::make_shared<ToSparse>(context.rows.levels, options.number("background"),
                                         options.number("threshold"));
     }})

}  // namespace convscope
