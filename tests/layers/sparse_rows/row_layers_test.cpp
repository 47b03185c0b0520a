// SPDX-License-Identifier: Apache-2.0
// row_layers_test.cpp: compares layers on sparse rows (pools, batch norm, conversions between rows
// and images) with dense layers and with finite differences. Also tests inputs without sites.
#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/elementwise.h"
#include "layers/pool2d/pool2d.h"
#include "layers/sparse_rows/image_rows.h"
#include "layers/sparse_rows/row_norm.h"
#include "layers/sparse_rows/row_sums.h"
#include "layers/sparse_rows/sparse_points.h"
#include "layers/sparse_rows/sparse_pool.h"
#include "tests/layers/sparse_rows/row_case.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

constexpr PoolMode kModes[] = {PoolMode::max, PoolMode::avg};
const SparseKernel kWindow{.size = {3, 2, 3}, .stride = {2, 2, 2}, .padding = {1, 0, 1}};

TEST(SparsePool, GradientsAreFiniteDifferences) {
  const SharedSites sites = some_sites({3, 2, {6, 5, 6}}, 0.2);
  const SharedMap map = SparseMap::strided(sites, kWindow);
  for (const PoolMode mode : kModes) {
    for (const bool global : {false, true}) {
      const GradcheckResult result = gradcheck(
          [&](const std::vector<Variable>& v) {
            return global ? sparse_global_pool(v[0], *sites, mode) : sparse_pool(v[0], *map, mode);
          },
          {leaf(normal({sites->count(), 3}))});
      EXPECT_TRUE(result.ok) << result.str();
    }
  }
}

// If every pixel of an image is a site, max-pool and average pool equal the dense pools.
TEST(SparsePool, OfFullImagesIsTheDensePool) {
  const SiteGrid grid{2, 2, {1, 7, 8}};
  const SharedSites sites = all_sites(grid);
  const SparseKernel kernel{.size = {1, 3, 3}, .stride = {1, 2, 2}, .padding = {0, 1, 1}};
  const SharedMap map = SparseMap::strided(sites, kernel);
  const Pool2dWindow window{.kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 2,
                            .stride_w = 2,
                            .pad_h = 1,
                            .pad_w = 1,
                            .count_include_pad = false};
  const Tensor image = normal({2, 3, 7, 8}, DType::f32);
  for (const PoolMode mode : kModes) {
    const Variable x = leaf(image.clone()), rows = leaf(image.clone());
    const Variable y = mode == PoolMode::max ? max_pool2d(x, window) : avg_pool2d(x, window);
    const Variable z =
        image_of_rows(sparse_pool(rows_of_image(rows, *sites), *map, mode), *map->out_sites());
    EXPECT_TRUE(near(z.value(), y.value(), 1e-6, 1e-6));
    const Tensor dy = normal(y.shape(), DType::f32, 3);
    y.backward(dy);
    z.backward(dy);
    EXPECT_TRUE(near(rows.grad(), x.grad(), 1e-6, 1e-6));
  }
}

TEST(SparsePool, TheMeanCountsTheSitesThatAreThere) {
  // The first pooling window has sites at two of its four pixels; the second window has one site.
  const SharedSites sites = std::make_shared<const SparseSites>(
      coordinates_of({{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 0, 1, 2}}, 2), SiteGrid{2, 1, {1, 2, 4}});
  const SharedMap map = SparseMap::strided(sites, {.size = {1, 2, 2}, .stride = {1, 2, 2}});
  const Variable x(Tensor::from({2, -4, 5}, {3, 1}));
  const Tensor mean = sparse_pool(x, *map, PoolMode::avg).value();
  ASSERT_EQ(mean.shape(), (Shape{2, 1}));
  EXPECT_EQ(mean.at(0), -1);
  EXPECT_EQ(mean.at(1), 5);
  // The maximum of negative numbers is negative: pixels without a site do not count as zeros.
  const Variable negative(Tensor::from({-2, -4, -5}, {3, 1}));
  EXPECT_EQ(sparse_pool(negative, *map, PoolMode::max).value().at(0), -2);
}

TEST(SparsePool, TheFirstOfEqualOnesGetsTheGradientAndNaNIsSeen) {
  const SharedSites sites = all_sites({2, 1, {1, 1, 3}});
  const SharedMap map = SparseMap::strided(sites, {.size = {1, 1, 3}, .stride = {1, 1, 3}});
  const Variable x = leaf(Tensor::from({7, 7, 1}, {3, 1}));
  sparse_pool(x, *map, PoolMode::max).backward(Tensor::from({2}, {1, 1}));
  EXPECT_TRUE(near(x.grad(), Tensor::from({2, 0, 0}, {3, 1}), 0, 0));
  const Variable bad(Tensor::from({1, NAN, 2}, {3, 1}));
  EXPECT_TRUE(std::isnan(sparse_pool(bad, *map, PoolMode::max).value().at(0)));
}

TEST(SparsePool, ASampleWithoutSitesGivesZero) {
  const SharedSites sites = sites_with_a_gap({2, 3, {1, 5, 5}}, 0.4);
  for (const PoolMode mode : kModes) {
    const Variable x = leaf(uniform({sites->count(), 2}, -3, -1, DType::f32));
    const Variable y = sparse_global_pool(x, *sites, mode);
    ASSERT_EQ(y.shape(), (Shape{3, 2}));
    EXPECT_LT(y.value().at(0), -0.9);
    EXPECT_EQ(y.value().at(2), 0);
    EXPECT_EQ(y.value().at(3), 0);
    EXPECT_LT(y.value().at(5), -0.9);
    y.backward(Tensor::full({3, 2}, 1));
    double sum = 0;
    for (std::int64_t i = 0; i < x.grad().numel(); ++i) sum += x.grad().at(i);
    EXPECT_NEAR(sum, 4, 1e-5);  // two samples of two channels
  }
}

TEST(SparsePool, WithoutSitesGivesNoRowsAndNoGradient) {
  const SharedSites none = no_sites({3, 2, {6, 6, 6}});
  const SharedMap map = SparseMap::strided(none, kWindow);
  for (const PoolMode mode : kModes) {
    const Variable x = leaf(Tensor::empty({0, 3}));
    sparse_pool(x, *map, mode).backward(Tensor::empty({0, 3}));
    EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
    const Variable y = sparse_global_pool(leaf(Tensor::empty({0, 3})), *none, mode);
    EXPECT_TRUE(near(y.value(), Tensor::zeros({2, 3}), 0, 0));
    y.backward(Tensor::full({2, 3}, 1));
  }
}

TEST(SparseRows, KernelsGiveTheSameBitsWithAnyNumberOfThreads) {
  const SharedSites sites = some_sites({3, 3, {12, 12, 12}}, 0.3);
  const SharedMap map = SparseMap::strided(sites, kWindow);
  const Tensor x = normal({sites->count(), 7}, DType::f32);
  const Variable weight(normal({7}, DType::f32)), bias(normal({7}, DType::f32));
  for (const PoolMode mode : kModes) {
    on_every_machine(
        [&] {
          const Variable v = leaf(x);
          const Variable y = row_norm(sparse_pool(v, *map, mode), weight, bias, 1e-5);
          y.backward(normal(y.shape(), DType::f32, 9));
          return v.grad();
        },
        [](const Tensor&) {});
  }
}

TEST(SparseBatchNorm, IsBatchNormOverTheRows) {
  const Shape rows{700, 5};  // more than one piece
  const Tensor x = normal(rows, DType::f32), dy = normal(rows, DType::f32, 2);
  const Variable weight = leaf(normal({5}, DType::f32, 3)), bias = leaf(normal({5}, DType::f32, 4));
  const Variable other_weight = leaf(weight.value().clone()),
                 other_bias = leaf(bias.value().clone());
  const Variable v = leaf(x), image = leaf(x.reshape({700, 5, 1, 1}));
  BatchNormStatistics ours, theirs;
  const Variable y = row_norm(v, weight, bias, 1e-5, &ours);
  const Variable z = batch_norm2d(image, other_weight, other_bias, 1e-5, &theirs);
  EXPECT_TRUE(near(y.value(), z.value().reshape(rows), 1e-6, 1e-6));
  EXPECT_TRUE(near(ours.mean, theirs.mean, 1e-8, 1e-6));
  EXPECT_TRUE(near(ours.variance, theirs.variance, 1e-8, 1e-6));
  y.backward(dy);
  z.backward(dy.reshape({700, 5, 1, 1}));
  EXPECT_TRUE(near(v.grad(), image.grad().reshape(rows), 1e-6, 1e-5));
  EXPECT_TRUE(near(weight.grad(), other_weight.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(near(bias.grad(), other_bias.grad(), 1e-4, 1e-5));
}

TEST(SparseBatchNorm, GradientsAreFiniteDifferences) {
  const std::vector<Variable> inputs = {leaf(normal({9, 3}, DType::f64, 1)),
                                        leaf(normal({3}, DType::f64, 2)),
                                        leaf(normal({3}, DType::f64, 3))};
  const GradcheckResult training = gradcheck(
      [](const std::vector<Variable>& v) { return row_norm(v[0], v[1], v[2], 1e-5); }, inputs);
  EXPECT_TRUE(training.ok) << training.str();
  const Tensor mean = normal({3}, DType::f64, 4), variance = uniform({3}, 0.5, 2);
  const GradcheckResult eval = gradcheck(
      [&](const std::vector<Variable>& v) {
        return row_norm(v[0], v[1], v[2], mean, variance, 1e-5);
      },
      inputs);
  EXPECT_TRUE(eval.ok) << eval.str();
}

TEST(SparseBatchNorm, FewRowsLeaveTheRunningStatistics) {
  LayerContext context;
  SparseBatchNorm norm(2, {}, context);
  const auto buffers = [&] {
    std::vector<double> out;
    for (const NamedTensor& buffer : norm.buffers()) {
      for (std::int64_t i = 0; i < 2; ++i) out.push_back(buffer.tensor.at(i));
    }
    return out;
  };
  const std::vector<double> before = buffers();
  const Variable none = norm.forward(leaf(Tensor::empty({0, 2})));
  none.backward(Tensor::empty({0, 2}));
  EXPECT_EQ(buffers(), before);
  const Variable one = leaf(Tensor::from({3, -8}, {1, 2}));
  const Variable y = norm.forward(one);
  EXPECT_TRUE(near(y.value(), Tensor::zeros({1, 2}), 1e-6, 0));
  y.backward(Tensor::full({1, 2}, 1));
  EXPECT_TRUE(near(one.grad(), Tensor::zeros({1, 2}), 1e-6, 0));
  EXPECT_EQ(buffers(), before);
  norm.forward(Variable(Tensor::from({1, 2, 3, 6}, {2, 2})));
  EXPECT_NEAR(buffers()[0], 0.2, 1e-6);        // a tenth of the mean 2
  EXPECT_NEAR(buffers()[2], 0.9 + 0.2, 1e-6);  // variance 1, of two rows 2
}

TEST(ImageRows, TakesPlacesThatAreNotBackgroundAndPutsThemBack) {
  const Tensor image = Tensor::zeros({2, 2, 3, 4});
  image.data<float>()[5] = 2;               // sample 0, channel 0, place 5
  image.data<float>()[12 + 7] = -3;         // sample 0, channel 1, place 7
  image.data<float>()[24 + 12 + 7] = 0.25;  // sample 1, below the threshold
  const SharedSites sites = sites_of_image(image, 0, 0.5);
  ASSERT_EQ(sites->count(), 2);
  EXPECT_EQ(sites->grid().text(), "2x3x4");
  const Tensor rows = rows_of_image(Variable(image), *sites).value();
  EXPECT_TRUE(near(rows, Tensor::from({2, 0, 0, -3}, {2, 2}), 0, 0));
  const Tensor back = image_of_rows(Variable(rows), *sites).value();
  EXPECT_EQ(back.at(5), 2);
  EXPECT_EQ(back.at(12 + 7), -3);
  EXPECT_EQ(back.at(24 + 12 + 7), 0);
  EXPECT_EQ(sites_of_image(Tensor::full({1, 1, 3, 3}, -0.5), -0.5)->count(), 0);
  EXPECT_EQ(sites_of_image(Tensor::full({1, 1, 2, 2, 2}, NAN), 0)->count(), 8);
}

TEST(ImageRows, GradientsAreFiniteDifferences) {
  const SharedSites sites = sites_with_a_gap({3, 3, {3, 4, 2}}, 0.4);
  const GradcheckResult to_dense =
      gradcheck([&](const std::vector<Variable>& v) { return image_of_rows(v[0], *sites); },
                {leaf(normal({sites->count(), 2}))});
  EXPECT_TRUE(to_dense.ok) << to_dense.str();
  const GradcheckResult to_rows =
      gradcheck([&](const std::vector<Variable>& v) { return rows_of_image(v[0], *sites); },
                {leaf(normal({3, 2, 3, 4, 2}))});
  EXPECT_TRUE(to_rows.ok) << to_rows.str();
}

TEST(ImageRows, WithoutSitesTheImageIsZero) {
  const SharedSites none = no_sites({2, 2, {1, 3, 3}});
  const Variable x = leaf(Tensor::empty({0, 4}));
  const Variable y = image_of_rows(x, *none);
  EXPECT_TRUE(near(y.value(), Tensor::zeros({2, 4, 3, 3}), 0, 0));
  y.backward(Tensor::full({2, 4, 3, 3}, 1));
  const Variable image = leaf(Tensor::zeros({2, 4, 3, 3}));
  rows_of_image(image, *none).backward(Tensor::empty({0, 4}));
  EXPECT_TRUE(near(image.grad(), Tensor::zeros({2, 4, 3, 3}), 0, 0));
}

TEST(SparsePoints, ListsInAnyOrderBecomeRowsInTheOrderOfTheKeys) {
  const SiteGrid grid{2, 1, {1, 4, 5}};
  const Tensor x =
      Tensor::from({3, 4, 0.5f, 0, 1, 0.25f, -1, 0, 0, 2, 2, 1, -1, 9, 9, -1, 9, 9}, {2, 3, 3});
  const PointRows points = rows_of_points(x, grid);
  ASSERT_EQ(points.sites->count(), 3);
  EXPECT_TRUE(near(points.rows, Tensor::from({0.25f, 0.5f, 1}, {3, 1}), 0, 0));
  EXPECT_EQ(points.sites->place(2).batch, 1);
  const PointRows filled = rows_of_points(x, grid, /*fill=*/true);
  EXPECT_EQ(filled.sites->count(), 40);
  EXPECT_EQ(filled.rows.at(1), 0.25);
  EXPECT_EQ(filled.rows.at(0), 0);
  EXPECT_EQ(rows_of_points(Tensor::full({3, 2, 3}, -1), grid).sites->count(), 0);
}

TEST(SparsePoints, RefusesPlacesThatAreNone) {
  const SiteGrid grid{2, 1, {1, 4, 5}};
  const auto refused = [&](std::initializer_list<float> row, const char* part) {
    EXPECT_ERROR(ErrorKind::kInvalid, part, rows_of_points(Tensor::from(row, {1, 1, 3}), grid));
  };
  refused({1.5f, 0, 1}, "whole numbers, got 1.5 in point 0 of sample 0");
  refused({NAN, 0, 1}, "whole numbers");
  refused({0, 5, 1}, "inside of the grid 1x4x5, got 5 on axis 1");
  refused({0, -1, 1}, "inside of the grid");
  EXPECT_ERROR(ErrorKind::kInvalid, "each place once, got [0, 1, 2]",
               rows_of_points(Tensor::from({1, 2, 1, 1, 2, 1}, {1, 2, 3}), grid));
  EXPECT_ERROR(ErrorKind::kInvalid, "at least one feature",
               rows_of_points(Tensor::zeros({1, 1, 2}), grid));
}

TEST(RowSums, AddTheRowsOfEachChannel) {
  const Tensor x = sparse_numbers({1000, 3}, true, 1), sums = Tensor::empty({3}, DType::f64);
  row_sums(x, sums);
  for (std::int64_t c = 0; c < 3; ++c) {
    double want = 0;
    for (std::int64_t i = 0; i < 1000; ++i) want += x.at(i * 3 + c);
    EXPECT_EQ(sums.at(c), want);
  }
  row_sums(Tensor::empty({0, 3}), sums);
  EXPECT_EQ(sums.at(1), 0);
}

}  // namespace
}  // namespace convscope::testing
