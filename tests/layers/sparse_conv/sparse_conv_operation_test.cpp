// SPDX-License-Identifier: Apache-2.0
// sparse_conv_operation_test.cpp: tests the differentiable sparse convolution against finite
// differences and against the dense convolution, evaluated at the sites. Also tests inputs without
// sites, and refused arguments.
#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/elementwise.h"
#include "layers/conv2d/conv2d.h"
#include "layers/sparse_conv/sparse_conv.h"
#include "layers/sparse_rows/image_rows.h"
#include "tests/layers/sparse_rows/row_case.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

struct Small {
  const char* name;
  SiteGrid grid;
  SparseKind kind;
  SparseKernel kernel;
};

TEST(SparseConvOperation, GradientsAreFiniteDifferences) {
  const Small cases[] = {
      {"plane",
       {2, 2, {1, 5, 6}},
       SparseKind::submanifold,
       {.size = {1, 3, 5}, .dilation = {1, 2, 1}}},
      {"volume", {3, 1, {4, 3, 4}}, SparseKind::submanifold, {.size = {3, 1, 3}}},
      {"strided",
       {3, 2, {5, 4, 4}},
       SparseKind::strided,
       {.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}}},
      {"inverse", {2, 2, {1, 6, 5}}, SparseKind::inverse, {.size = {1, 2, 3}, .stride = {1, 2, 2}}},
  };
  for (const Small& of : cases) {
    SCOPED_TRACE(of.name);
    const SharedSites sites = some_sites(of.grid, 0.3);
    SharedMap map = of.kind == SparseKind::submanifold ? SparseMap::submanifold(sites, of.kernel)
                                                       : SparseMap::strided(sites, of.kernel);
    if (of.kind == SparseKind::inverse) map = SparseMap::inverse(map);
    const SparseConvProblem z{.map = map, .c = 2, .k = 3, .dtype = DType::f64};
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& v) { return sparse_conv(v[0], v[1], v[2], map); },
        {leaf(normal(z.x_shape(), DType::f64, 1)), leaf(normal(z.w_shape(), DType::f64, 2)),
         leaf(normal({3}, DType::f64, 3))});
    EXPECT_TRUE(result.ok) << result.str();
  }
}

// Compares a sparse convolution with a dense convolution at the same sites, in f32 on small
// integers.
TEST(SparseConvOperation, IsTheDenseConvolutionAtTheSitesForwardAndBackward) {
  const SiteGrid grid{2, 2, {1, 9, 8}};
  const SharedSites sites = some_sites(grid, 0.4);
  const SharedMap map = SparseMap::submanifold(sites, {.size = {1, 3, 5}});
  const Variable x = leaf(sparse_numbers({sites->count(), 3}, true, 1));
  const Variable w = leaf(sparse_numbers({4, 3, 3, 5}, true, 2));
  const Variable b = leaf(sparse_numbers({4}, true, 3));
  const Variable dense_x = leaf(x.value().clone()), dense_w = leaf(w.value().clone());
  const Variable dense_b = leaf(b.value().clone());
  const Variable y = sparse_conv(x, w, b, map);
  const Variable dense_y =
      rows_of_image(conv2d(image_of_rows(dense_x, *sites), dense_w, dense_b,
                           {.padding = {1, 1, 2, 2}}, {"reference", "reference", "reference"}),
                    *sites);
  EXPECT_TRUE(same_bits(y.value(), dense_y.value()));
  const Tensor dy = sparse_numbers(y.shape(), true, 4);
  y.backward(dy);
  dense_y.backward(dy);
  EXPECT_TRUE(same_bits(x.grad(), dense_x.grad()));
  EXPECT_TRUE(same_bits(w.grad(), dense_w.grad()));
  EXPECT_TRUE(same_bits(b.grad(), dense_b.grad()));
}

TEST(SparseConvOperation, GradientsOfParametersAccumulate) {
  const SharedSites sites = some_sites({3, 1, {4, 4, 4}}, 0.3);
  const SharedMap map = SparseMap::submanifold(sites, {.size = {3, 3, 3}});
  const Variable x(sparse_numbers({sites->count(), 2}, true, 1));
  const Variable w = leaf(sparse_numbers({3, 2, 3, 3, 3}, true, 2)), b = leaf(Tensor::zeros({3}));
  const auto step = [&] {
    const Variable y = sparse_conv(x, w, b, map);
    y.backward(sparse_numbers(y.shape(), true, 4));
  };
  step();
  const Tensor dw = w.grad().clone(), db = b.grad().clone();
  step();
  for (std::int64_t i = 0; i < dw.numel(); ++i) EXPECT_EQ(w.grad().at(i), 2 * dw.at(i));
  for (std::int64_t i = 0; i < db.numel(); ++i) EXPECT_EQ(b.grad().at(i), 2 * db.at(i));
}

TEST(SparseConvOperation, WithoutSitesNothingIsComputedAndGradientsAreZero) {
  const SharedSites none = no_sites({3, 2, {6, 6, 6}});
  const SparseKernel kernel{.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}};
  const SharedMap maps[] = {SparseMap::submanifold(none, {.size = {3, 3, 3}}),
                            SparseMap::strided(none, kernel),
                            SparseMap::inverse(SparseMap::strided(none, kernel))};
  for (const SharedMap& map : maps) {
    SCOPED_TRACE(map->text());
    const Variable x = leaf(Tensor::empty({0, 4}));
    const Variable w = leaf(normal({5, 4, 3, 3, 3}, DType::f32)), b = leaf(normal({5}, DType::f32));
    const Variable y = sparse_conv(x, w, b, map);
    EXPECT_EQ(y.shape(), (Shape{0, 5}));
    y.backward(Tensor::empty({0, 5}));
    EXPECT_EQ(x.grad().shape(), (Shape{0, 4}));
    EXPECT_TRUE(near(w.grad(), Tensor::zeros(w.shape()), 0, 0));
    EXPECT_TRUE(near(b.grad(), Tensor::zeros(b.shape()), 0, 0));
  }
}

TEST(SparseConvOperation, ThePolicyCountsForEachDirection) {
  const SharedSites sites = some_sites({2, 1, {1, 6, 6}}, 0.5);
  const SharedMap map = SparseMap::submanifold(sites, {.size = {1, 3, 3}});
  const Variable x = leaf(normal({sites->count(), 4}, DType::f32));
  const Variable w = leaf(normal({4, 4, 3, 3}, DType::f32));
  EXPECT_ERROR(ErrorKind::kUnavailable, "no_such",
               sparse_conv(x, w, {}, map, {.policy = {"no_such", "auto", "auto"}}));
  const Variable y = sparse_conv(
      x, w, {}, map,
      {.policy = {"check:implicit_gemm,reference", "native", "no_such"}, .layer = "c1"});
  EXPECT_ERROR(ErrorKind::kUnavailable, "no_such", y.backward(normal(y.shape(), DType::f32)));
}

TEST(SparseConvOperation, RefusesWhatDoesNotBelongToTheMap) {
  const SharedSites sites = some_sites({3, 1, {5, 5, 5}}, 0.2);
  const SharedMap map = SparseMap::submanifold(sites, {.size = {3, 3, 3}});
  const Variable x(normal({sites->count(), 2}, DType::f32));
  const auto w = [](const Shape& shape) { return Variable(normal(shape, DType::f32)); };
  EXPECT_ERROR(ErrorKind::kInvalid, "a row for each input site",
               sparse_conv(Variable(normal({sites->count() + 1, 2}, DType::f32)),
                           w({3, 2, 3, 3, 3}), {}, map));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected w [K,2,T,R,S]",
               sparse_conv(x, w({3, 4, 3, 3, 3}), {}, map));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected w [3,2,3,3,3]",
               sparse_conv(x, w({3, 2, 1, 3, 3}), {}, map));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected b [3]",
               sparse_conv(x, w({3, 2, 3, 3, 3}), w({2}), map));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a map, got none",
               sparse_conv(x, w({3, 2, 3, 3, 3}), {}, nullptr));
}

}  // namespace
}  // namespace convscope::testing
