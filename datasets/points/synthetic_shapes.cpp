// SPDX-License-Identifier: Apache-2.0
// synthetic_shapes.cpp: draws the data set synthetic_shapes. The file is compiled without
// contraction to FMA instructions, as synthetic_digits.cpp.
#include "datasets/points/synthetic_shapes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "datasets/points/shape_surfaces.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr std::uint64_t kTrainStream = 0x5a4e'0001'0000'0000u;
constexpr std::uint64_t kTestStream = 0x5a4e'0002'0000'0000u;

// Returns the distinct places of one sample, ascending.
std::vector<std::int32_t> draw(int shape, const SyntheticShapesOptions& options, Generator random) {
  const auto between = [&random](double low, double high) {
    return low + (high - low) * static_cast<double>(random.uniform());
  };
  const auto size = static_cast<double>(options.size);
  std::vector<SpacePoint> points = points_of_shape(shape, static_cast<int>(options.points), random);
  // The extent of the object is a random fraction of the grid's, from 0.6 to 0.9. Its position in
  // the grid is random.
  const double scale = 0.5 * size * between(0.6, 0.9);
  const double room = 0.5 * size - scale;
  const double x = 0.5 * size + between(-room, room), y = 0.5 * size + between(-room, room);
  const double z = 0.5 * size + between(-room, room);
  std::vector<std::int32_t> out;
  for (const SpacePoint& p : points) {
    const bool anywhere = static_cast<double>(random.uniform()) < options.noise / 50;
    double at[3] = {z + scale * p.z, y + scale * p.y, x + scale * p.x};
    std::int64_t place = 0;
    bool inside = true;
    for (double& v : at) {
      v = anywhere ? between(0, size) : v + options.noise * static_cast<double>(random.normal());
      const double voxel = std::floor(v);
      inside = inside && voxel >= 0 && voxel < size;
      place = place * options.size + static_cast<std::int64_t>(inside ? voxel : 0);
    }
    if (inside) out.push_back(static_cast<std::int32_t>(place));
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Dataset draw_part(const SyntheticShapesOptions& options, std::int64_t count, std::uint64_t stream) {
  std::vector<std::vector<std::int32_t>> places(static_cast<std::size_t>(count));
  Dataset out;
  out.name = "synthetic_shapes";
  out.classes = kShapeClasses;
  out.class_names.assign(kShapeNames, kShapeNames + kShapeClasses);
  out.labels = Tensor::empty({count}, DType::i32);
  auto* const labels = out.labels.data<std::int32_t>();
  parallel_for(count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const int shape = static_cast<int>(i % kShapeClasses);  // equal numbers
      labels[i] = shape;
      places[static_cast<std::size_t>(i)] =
          draw(shape, options, Generator(options.seed, stream + static_cast<std::uint64_t>(i)));
    }
  });
  auto set = std::make_shared<PointSet>();
  set->grid = {options.size, options.size, options.size};
  set->most = options.points;
  for (std::vector<std::int32_t>& one : places) {
    std::vector<float> ones(one.size(), 1.0f);
    set->add(std::move(one), std::move(ones), out.name);
  }
  out.points = std::move(set);
  return out;
}

SyntheticShapesOptions read(const Options& options) {
  return {.train_size = options.integer("train_size"),
          .test_size = options.integer("test_size"),
          .seed = static_cast<std::uint64_t>(options.integer("seed")),
          .size = options.integer("size"),
          .points = options.integer("points"),
          .noise = options.number("noise")};
}

std::vector<OptionField> fields() {
  using enum OptionType;
  const SyntheticShapesOptions of;
  return {{.name = "train_size",
           .type = integer,
           .default_value = of.train_size,
           .doc = "training samples",
           .min = 1,
           .max = 1e6},
          {.name = "test_size",
           .type = integer,
           .default_value = of.test_size,
           .doc = "test samples",
           .min = 1,
           .max = 1e6},
          {.name = "size",
           .type = integer,
           .default_value = of.size,
           .doc = "size of the grid along each axis, in voxels",
           .min = 8,
           .max = 1024},
          {.name = "points",
           .type = integer,
           .default_value = of.points,
           .doc = "points per sample; points in one voxel form one site",
           .min = 16,
           .max = 1e6},
          {.name = "noise",
           .type = number,
           .default_value = of.noise,
           .doc = "standard deviation of a point from its surface, in voxels",
           .min = 0,
           .max = 10},
          {.name = "seed",
           .type = integer,
           .default_value = std::int64_t{1},
           .doc = "seed of the generated shapes, independent of the run's seed",
           .min = 0}};
}

}  // namespace

DatasetSplits synthetic_shapes(const SyntheticShapesOptions& options) {
  constexpr const char* kName = "synthetic_shapes";
  CONVSCOPE_CHECK(options.train_size >= 0 && options.test_size >= 0, kName,
                  "expected sizes of at least 0, got ", options.train_size, " and ",
                  options.test_size);
  CONVSCOPE_CHECK(options.size >= 8 && options.size <= 1024, kName,
                  "expected a grid of 8 to 1024 voxels along each axis, got ", options.size);
  CONVSCOPE_CHECK(options.points >= 16 && options.points <= 1000000, kName,
                  "expected 16 to 1000000 points of a sample, got ", options.points);
  CONVSCOPE_CHECK(options.noise >= 0 && options.noise <= 10, kName,
                  "expected a noise of 0 to 10 voxels, got ", options.noise);
  return {draw_part(options, options.train_size, kTrainStream),
          draw_part(options, options.test_size, kTestStream)};
}

CONVSCOPE_REGISTER_DATASET(
    "synthetic_shapes",
    {.doc = "generated 3-D points: surfaces, rooms and laser scans; needs no files",
     .fields = fields(),
     .load = [](const Options& options) { return synthetic_shapes(read(options)); },
     .sample_shape =
         [](const Options& options) {
           return Shape{options.integer("points"), 4};
         },
     .classes = kShapeClasses,
     .sizes =
         [](const Options& options) {
           return DatasetType::Sizes{options.integer("train_size"), options.integer("test_size")};
         },
     .point_grid =
         [](const Options& options) {
           return std::vector<std::int64_t>(3, options.integer("size"));
         }})

}  // namespace convscope
