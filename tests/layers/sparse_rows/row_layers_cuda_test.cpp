// SPDX-License-Identifier: Apache-2.0
// row_layers_cuda_test.cpp: compares layers on sparse rows on `device cuda` with the CPU: pools,
// batch norm, conversions between rows and images, sparse convolutions, and whole networks.
#include <gtest/gtest.h>

#include "layers/losses/cross_entropy.h"
#include "layers/sparse_conv/sparse_conv.h"
#include "layers/sparse_rows/image_rows.h"
#include "layers/sparse_rows/row_norm.h"
#include "layers/sparse_rows/row_sums.h"
#include "layers/sparse_rows/sparse_points.h"
#include "layers/sparse_rows/sparse_pool.h"
#include "tests/layers/sparse_rows/row_case.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope::testing {
namespace {

using SparseRowsOnCuda = CudaTest;
constexpr DType kTypes[] = {DType::f32, DType::f64};

TEST_F(SparseRowsOnCuda, PoolsAreThoseOfTheCpu) {
  const SparseKernel window{.size = {3, 2, 3}, .stride = {2, 2, 2}, .padding = {1, 0, 1}};
  for (const SharedSites& sites :
       {some_sites({3, 2, {6, 5, 6}}, 0.2), sites_with_a_gap({3, 3, {4, 4, 4}}, 0.3),
        no_sites({3, 2, {6, 5, 6}})}) {
    const SharedMap map = SparseMap::strided(sites, window);
    for (const DType dtype : kTypes) {
      for (const PoolMode mode : {PoolMode::max, PoolMode::avg}) {
        expect_gradients_like_cpu(
            [&](const std::vector<Variable>& v) { return sparse_pool(v[0], *map, mode); },
            {normal({sites->count(), 5}, dtype)}, few_ulp(dtype));
        expect_gradients_like_cpu(
            [&](const std::vector<Variable>& v) { return sparse_global_pool(v[0], *sites, mode); },
            {normal({sites->count(), 5}, dtype)}, few_ulp(dtype));
      }
    }
  }
}

TEST_F(SparseRowsOnCuda, BatchNormIsThatOfTheCpu) {
  const Tensor mean = normal({5}, DType::f64, 5), variance = uniform({5}, 0.5, 2);
  for (const std::int64_t rows : {0, 1, 37, 700}) {
    for (const DType dtype : kTypes) {
      const std::vector<Tensor> inputs = {normal({rows, 5}, dtype, 1), normal({5}, dtype, 2),
                                          normal({5}, dtype, 3)};
      const Bound bound = few_ulp(dtype, 200);  // sums of many terms
      expect_gradients_like_cpu(
          [&](const std::vector<Variable>& v) { return row_norm(v[0], v[1], v[2], 1e-5); }, inputs,
          bound);
      expect_gradients_like_cpu(
          [&](const std::vector<Variable>& v) {
            const Device device = v[0].device();
            return row_norm(v[0], v[1], v[2], mean.to(device), variance.to(device), 1e-5);
          },
          inputs, bound);
    }
  }
}

TEST_F(SparseRowsOnCuda, SumsOfRowsAreThoseOfTheCpu) {
  for (const std::int64_t rows : {0, 3, 600}) {
    expect_like_cpu(
        [](const std::vector<Tensor>& x) {
          const Tensor sums = Tensor::empty({7}, DType::f64, x[0].device());
          row_sums(x[0], sums);
          return std::vector<Tensor>{sums};
        },
        {normal({rows, 7}, DType::f32)}, few_ulp(DType::f64, 100));
  }
}

TEST_F(SparseRowsOnCuda, ImagesAndRowsAreThoseOfTheCpu) {
  for (const SharedSites& sites :
       {sites_with_a_gap({3, 3, {3, 4, 2}}, 0.4), no_sites({3, 2, {3, 4, 2}})}) {
    for (const DType dtype : kTypes) {
      expect_gradients_like_cpu(
          [&](const std::vector<Variable>& v) { return image_of_rows(v[0], *sites); },
          {normal({sites->count(), 3}, dtype)}, {});
      expect_gradients_like_cpu(
          [&](const std::vector<Variable>& v) { return rows_of_image(v[0], *sites); },
          {normal(sites->grid().dense_shape(3), dtype)}, {});
    }
  }
  const Tensor image = normal({2, 2, 4, 5}, DType::f32);
  EXPECT_EQ(sites_of_image(image.to(cuda()), 0, 0.5)->keys(),
            sites_of_image(image, 0, 0.5)->keys());
}

TEST_F(SparseRowsOnCuda, PointsAreThoseOfTheCpu) {
  const SharedSites sites = sites_with_a_gap({2, 3, {1, 5, 6}}, 0.3);
  const Tensor x = points_of(*sites, normal({sites->count(), 2}, DType::f32));
  for (const bool fill : {false, true}) {
    const PointRows there = rows_of_points(x.to(cuda()), {2, 1, {1, 5, 6}}, fill);
    const PointRows here = rows_of_points(x, {2, 1, {1, 5, 6}}, fill);
    EXPECT_EQ(there.rows.device(), cuda());
    EXPECT_EQ(there.sites->keys(), here.sites->keys());
    EXPECT_TRUE(same_bits(there.rows.to(Device{}), here.rows));
  }
}

class SparseConvOnCuda : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && sparse_conv_algorithms(DeviceType::cuda).names().empty()) {
      GTEST_SKIP() << "no algorithm of sparse convolution for device cuda";
    }
  }
};

TEST_F(SparseConvOnCuda, TheOperationIsThatOfTheCpu) {
  const SharedSites sites = some_sites({3, 2, {6, 6, 6}}, 0.2);
  const SparseKernel step{.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}};
  const SharedMap strided = SparseMap::strided(sites, step);
  for (const SharedMap& map :
       {SparseMap::submanifold(sites, {.size = {3, 3, 3}}), strided, SparseMap::inverse(strided),
        SparseMap::submanifold(no_sites({3, 1, {4, 4, 4}}), {.size = {3, 3, 3}})}) {
    SCOPED_TRACE(map->text());
    expect_gradients_like_cpu(
        [&](const std::vector<Variable>& v) { return sparse_conv(v[0], v[1], v[2], map); },
        {normal({map->in_sites()->count(), 8}, DType::f32, 1),
         normal({16, 8, 3, 3, 3}, DType::f32, 2), normal({16}, DType::f32, 3)},
        few_ulp(DType::f32, 400));
  }
}

TEST_F(SparseConvOnCuda, ANetworkStepIsThatOfTheCpu) {
  const std::vector<LayerSpec> specs = {
      layer("sparse_points", {}),
      layer("submanifold_conv", {{"out_channels", whole(8)}, {"kernel_size", whole(3)}}, "c1"),
      layer("sparse_batch_norm", {}, "n1"),
      layer("relu", {}),
      layer("sparse_residual", {{"out_channels", whole(8)}, {"stride", whole(2)}}, "r2"),
      layer("sparse_inverse_conv", {{"out_channels", whole(8)}}, "u3"),
      layer("sparse_global_pool", {}),
      layer("linear", {{"out_features", whole(3)}}, "f")};
  const SharedSites sites = sites_with_a_gap({3, 3, {6, 7, 8}}, 0.1);
  const Tensor x = points_of(*sites, normal({sites->count(), 1}, DType::f32));
  const auto step = [&](Device device) {
    LayerContext context;
    context.seed = 3;
    context.device = device;
    context.point_grid = {6, 7, 8};
    const auto network = build_layers(specs, {1, 40, 4}, context);
    const Tensor labels = Tensor::zeros({3}, DType::i32).to(device);
    const Variable loss = softmax_cross_entropy(network->forward(Variable(x.to(device))), labels);
    loss.backward();
    std::vector<Tensor> out{loss.value().to(Device{})};
    for (const NamedParameter& p : network->parameters()) {
      out.push_back(p.variable.grad().to(Device{}));
    }
    return out;
  };
  const std::vector<Tensor> here = step(Device{}), there = step(cuda());
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_TRUE(near(there[i], here[i], 1e-4, 1e-3)) << i;
  }
}

}  // namespace
}  // namespace convscope::testing
