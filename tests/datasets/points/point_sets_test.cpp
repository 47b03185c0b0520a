// SPDX-License-Identifier: Apache-2.0
// point_sets_test.cpp: tests data sets whose samples are sets of points (drawn shapes, pixels with
// ink), and their use with subset, split and the loader.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "datasets/device_data.h"
#include "datasets/loader.h"
#include "datasets/points/ink_points.h"
#include "datasets/points/shape_surfaces.h"
#include "datasets/points/synthetic_shapes.h"
#include "datasets/synthetic_digits.h"
#include "framework/parallel.h"
#include "tests/support/expect_error.h"
#include "tests/support/idx_files.h"

namespace convscope {
namespace {

std::uint64_t hash_of(const std::vector<std::int32_t>& values) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const std::int32_t value : values) {
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ (static_cast<std::uint32_t>(value) >> (8 * byte) & 0xff)) * 0x100000001b3u;
    }
  }
  return hash;
}

TEST(SyntheticShapes, AreTheSameOnEveryMachineWithAnyNumberOfThreads) {
  const auto draw = [] { return synthetic_shapes({.train_size = 40, .test_size = 16}); };
  const int threads = num_threads();
  set_num_threads(1);
  const DatasetSplits one = draw();
  set_num_threads(2);
  EXPECT_EQ(draw().train.points->places, one.train.points->places);
  set_num_threads(threads);
  // This hash identifies the data set. If it changes, all results measured on this data set change.
  EXPECT_EQ(hash_of(one.train.points->places), 12009659018299419680u);
  // The training part and the test part have no sample in common.
  const auto sample = [](const Dataset& part, std::int64_t i) {
    return part.points->subset({i}).places;
  };
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_NE(sample(one.train, i), sample(one.test, i)) << i;
  EXPECT_NE(synthetic_shapes({.train_size = 40, .test_size = 1, .seed = 2}).train.points->places,
            one.train.points->places);
}

TEST(SyntheticShapes, HoldSomeHundredSitesOfEachClass) {
  const DatasetSplits data = synthetic_shapes({.train_size = 64, .test_size = 8});
  EXPECT_EQ(data.train.classes, kShapeClasses);
  EXPECT_EQ(data.train.sample_shape(), (Shape{1200, 4}));
  for (std::int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(data.train.labels.at(i), static_cast<double>(i % kShapeClasses));
    EXPECT_GT(data.train.points->points(i), 300) << kShapeNames[i % kShapeClasses];
    EXPECT_LE(data.train.points->points(i), 1200);
  }
  EXPECT_LT(data.train.points->density(), 0.05);
  // A sample in a larger grid is sparser.
  EXPECT_LT(synthetic_shapes({.train_size = 8, .test_size = 1, .size = 64}).train.points->density(),
            data.train.points->density() / 4);
}

TEST(SyntheticShapes, PointsLieOnTheirSurface) {
  Generator random(1, 1);
  for (const SpacePoint& p : points_of_shape(0, 200, random)) {  // a stretched sphere
    const double r = std::sqrt(p.x * p.x + p.y * p.y + p.z * p.z);
    EXPECT_GT(r, 0.69);
    EXPECT_LT(r, 1.001);
  }
  for (int shape = 0; shape < kShapeClasses; ++shape) {
    Generator own(2, static_cast<std::uint64_t>(shape));
    const std::vector<SpacePoint> points = points_of_shape(shape, 500, own);
    EXPECT_GE(points.size(), 300u) << kShapeNames[shape];
    for (const SpacePoint& p : points) {
      EXPECT_LT(std::max({std::abs(p.x), std::abs(p.y), std::abs(p.z)}), 1.8) << kShapeNames[shape];
    }
  }
}

TEST(SyntheticShapes, RefuseSizesThatAreNone) {
  EXPECT_ERROR(ErrorKind::kInvalid, "8 to 1024 voxels", synthetic_shapes({.size = 4}));
  EXPECT_ERROR(ErrorKind::kInvalid, "16 to 1000000 points", synthetic_shapes({.points = 1}));
  EXPECT_ERROR(ErrorKind::kInvalid, "noise of 0 to 10", synthetic_shapes({.noise = -1}));
}

TEST(InkPoints, AreThePixelsAboveTheThreshold) {
  const Dataset images = testing::numbered_dataset(5);
  const Dataset points = ink_points(images, 100, "ink");
  ASSERT_EQ(points.size(), 5);
  EXPECT_EQ(points.sample_shape(), (Shape{16, 3}));
  std::size_t at = 0;
  for (std::int64_t n = 0; n < 5; ++n) {
    EXPECT_EQ(points.labels.at(n), images.labels.at(n));
    for (std::int64_t i = 0; i < 16; ++i) {
      const double pixel = images.images.at(n * 16 + i);
      if (pixel <= 100) continue;
      EXPECT_EQ(points.points->places[at], i);
      EXPECT_FLOAT_EQ(points.points->features[at++], static_cast<float>(pixel / 255));
    }
  }
  EXPECT_EQ(at, points.points->places.size());
  EXPECT_ERROR(ErrorKind::kInvalid, "expected grey images",
               ink_points(testing::numbered_dataset(2, 3), 0, "ink"));
}

TEST(InkPoints, DigitPointsAreTheInkOfTheSyntheticDigits) {
  const DatasetType& type = dataset_types().get("digit_points");
  Options options(type.fields);
  options.set("train_size", std::int64_t{20});
  options.set("test_size", std::int64_t{10});
  const DatasetSplits points = type.load(options);
  const DatasetSplits images = synthetic_digits({.train_size = 20, .test_size = 10});
  EXPECT_EQ(points.train.points->places, ink_points(images.train, 64, "x").points->places);
  EXPECT_EQ(points.train.sample_shape(), type.sample_shape(options));
  EXPECT_GT(points.train.points->density(), 0.05);
  EXPECT_LT(points.train.points->density(), 0.4);
}

// Makes images with ink in some pixels, and the same samples as sets of points.
Dataset sparse_images(std::int64_t count) {
  Dataset out = testing::numbered_dataset(count, 1, 6);
  auto* pixel = out.images.data<std::uint8_t>();
  for (std::int64_t i = 0; i < out.images.numel(); ++i) {
    if (pixel[i] < 180) pixel[i] = 0;
  }
  out.mean = {0};  // pixels become v / 255
  out.std = {1};
  return out;
}

Tensor image_of(const Tensor& points, std::int64_t n) {
  const Tensor out = Tensor::zeros({6, 6});
  const float* row = points.data<float>() + n * points.dim(1) * 3;
  for (std::int64_t i = 0; i < points.dim(1) && row[0] >= 0; ++i, row += 3) {
    out.data<float>()[static_cast<int>(row[0]) * 6 + static_cast<int>(row[1])] = row[2];
  }
  return out;
}

TEST(PointLoader, GivesTheImagesOfTheImageLoaderAugmentedToo) {
  const Dataset images = sparse_images(23), points = ink_points(images, 0, "ink");
  const LoaderOptions options{.batch_size = 8, .seed = 5, .crop_padding = 2, .mirror = true};
  Loader a(images, options), b(points, options);
  for (const std::int64_t epoch : {0, 3}) {
    a.start_epoch(epoch);
    b.start_epoch(epoch);
    Batch x, y;
    while (a.next(x)) {
      ASSERT_TRUE(b.next(y));
      ASSERT_EQ(y.x.shape(), (Shape{x.x.dim(0), 36, 3}));
      for (std::int64_t n = 0; n < x.x.dim(0); ++n) {
        EXPECT_EQ(x.labels.at(n), y.labels.at(n));
        const Tensor image = image_of(y.x, n);
        for (std::int64_t i = 0; i < 36; ++i) {
          ASSERT_FLOAT_EQ(static_cast<float>(image.at(i)), static_cast<float>(x.x.at(n * 36 + i)))
              << "epoch " << epoch << ", sample " << n << ", pixel " << i;
        }
      }
    }
    EXPECT_FALSE(b.next(y));
  }
}

TEST(PointLoader, GoesOnInTheMiddleOfAnEpochWithTheSameBits) {
  const Dataset points = ink_points(sparse_images(23), 0, "ink");
  const LoaderOptions options{.batch_size = 4, .seed = 1, .crop_padding = 1};
  const auto rest = [&](std::int64_t first, bool prefetch) {
    LoaderOptions own = options;
    own.prefetch = prefetch;
    Loader loader(points, own);
    loader.start_epoch(2, first);
    std::vector<float> out;
    Batch batch;
    while (loader.next(batch)) {
      out.insert(out.end(), batch.x.data<float>(), batch.x.data<float>() + batch.x.numel());
    }
    return out;
  };
  const std::vector<float> all = rest(0, true), from_third = rest(3, false);
  ASSERT_GT(all.size(), from_third.size());
  EXPECT_TRUE(std::equal(from_third.begin(), from_third.end(),
                         all.end() - static_cast<std::ptrdiff_t>(from_third.size())));
}

TEST(PointLoader, SplitsLimitsAndSubsetsKeepTheSamples) {
  const Dataset points = ink_points(sparse_images(40), 0, "ink");
  const auto [rest, val] = split(points, 10, 3);
  EXPECT_EQ(rest.size(), 30);
  EXPECT_EQ(val.size(), 10);
  EXPECT_EQ(rest.points->places.size() + val.points->places.size(), points.points->places.size());
  const Dataset two = subset(points, {7, 2});
  EXPECT_EQ(two.labels.at(0), points.labels.at(7));
  EXPECT_EQ(two.points->points(1), points.points->points(2));
  EXPECT_EQ(limited(points, 12, 1).size(), 12);
  EXPECT_ERROR(ErrorKind::kInvalid, "indices below 40", subset(points, {40}));
}

TEST(PointLoader, PointsDoNotLiveOnADevice) {
  const Loader loader(ink_points(sparse_images(8), 0, "ink"), {.batch_size = 4});
  std::string why;
  EXPECT_EQ(DeviceData::make(loader, Device{}, &why), nullptr);
  EXPECT_NE(why.find("points"), std::string::npos) << why;
}

TEST(PointSet, RefusesWhatIsNoSample) {
  PointSet set;
  set.grid = {4, 4};
  set.most = 2;
  set.add({9, 3}, {1, 2}, "a");
  EXPECT_EQ(set.places, (std::vector<std::int32_t>{3, 9}));
  EXPECT_EQ(set.features, (std::vector<float>{2, 1}));
  EXPECT_ERROR(ErrorKind::kData, "b: expected at most 2 points in a sample, got 3",
               set.add({1, 2, 3}, {1, 1, 1}, "b"));
  EXPECT_ERROR(ErrorKind::kData, "places below 16, got 16", set.add({16}, {1}, "b"));
  EXPECT_ERROR(ErrorKind::kData, "place 5 twice", set.add({5, 5}, {1, 1}, "b"));
}

}  // namespace
}  // namespace convscope
