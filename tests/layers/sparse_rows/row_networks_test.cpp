// SPDX-License-Identifier: Apache-2.0
// row_networks_test.cpp: tests networks on sparse rows, built from a config: how sites pass from
// layer to layer, equality with dense networks, empty samples, and refused networks.
#include <gtest/gtest.h>

#include "layers/dispatch/operator_use.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "layers/sparse_conv/sparse_conv.h"
#include "layers/sparse_rows/image_rows.h"
#include "tests/layers/sparse_rows/row_case.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

using Integers = std::vector<std::int64_t>;
const std::vector<std::int64_t> kVolume = {8, 9, 10};

// A network with an encoder, a residual block and a decoder, which ends with one vector per sample.
std::vector<LayerSpec> deep_network() {
  return {layer("sparse_points", {}, "points"),
          layer("submanifold_conv", {{"out_channels", whole(4)}, {"kernel_size", whole(3)}}, "c1"),
          layer("sparse_batch_norm", {}, "n1"),
          layer("relu", {}),
          layer("sparse_residual", {{"out_channels", whole(6)}, {"stride", whole(2)}}, "r2"),
          layer("sparse_max_pool", {{"kernel_size", whole(2)}}, "p3"),
          layer("sparse_inverse_conv", {{"out_channels", whole(5)}, {"undo", word("p3")}}, "u3"),
          layer("sparse_inverse_conv", {{"out_channels", whole(4)}, {"bias", false}}, "u2"),
          layer("sparse_residual", {{"out_channels", whole(4)}}, "r4"),
          layer("dropout", {{"p", 0.2}}),
          layer("sparse_global_pool", {}),
          layer("linear", {{"out_features", whole(3)}}, "f5")};
}

TEST(RowNetwork, TrainsWithAnySitesAndWithNone) {
  const auto network = row_network(deep_network(), {1, 40, 4}, kVolume);
  const SiteGrid grid{3, 3, {8, 9, 10}};
  for (const SharedSites& sites : {some_sites(grid, 0.05), sites_with_a_gap(grid, 0.05),
                                   no_sites(grid), some_sites(grid, 0.002)}) {
    const Tensor x = points_of(*sites, normal({sites->count(), 1}, DType::f32));
    network->zero_grad();
    const Variable y = network->forward(Variable(x));
    ASSERT_EQ(y.shape(), (Shape{3, 3}));
    const Tensor labels = Tensor::zeros({3}, DType::i32);
    const Variable loss = softmax_cross_entropy(y, labels);
    EXPECT_TRUE(std::isfinite(loss.value().item()));
    loss.backward();
    for (const NamedParameter& parameter : network->parameters()) {
      for (std::int64_t i = 0; i < parameter.variable.grad().numel(); ++i) {
        ASSERT_TRUE(std::isfinite(parameter.variable.grad().at(i))) << parameter.name;
      }
    }
  }
  network->eval();
  const SharedSites none = no_sites(grid);
  const Tensor x = points_of(*none, Tensor::empty({0, 1}));
  EXPECT_EQ(network->forward(Variable(x)).shape(), (Shape{3, 3}));
}

TEST(RowNetwork, ABackwardPassHoldsItsMapsWhenTheNextBatchHasBegun) {
  const SiteGrid grid{3, 2, {8, 9, 10}};
  const auto points = [&](std::uint64_t seed) {
    const SharedSites sites = some_sites(grid, 0.05, seed);
    return points_of(*sites, normal({sites->count(), 1}, DType::f32, seed));
  };
  const auto gradient = [&](bool next_batch_between) {
    const auto network = row_network(deep_network(), {1, 40, 4}, kVolume);
    const Variable y = network->forward(Variable(points(1)));
    if (next_batch_between) network->forward(Variable(points(2)));
    y.backward(Tensor::full(y.shape(), 1));
    return network->parameters()[0].variable.grad();
  };
  EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
}

// With `fill` every pixel is a site, so that submanifold and strided layers equal dense layers.
TEST(RowNetwork, WithAllPlacesFilledItIsTheDenseNetwork) {
  const Integers plane = {9, 8};
  const auto rows = row_network(
      {layer("sparse_points", {{"fill", true}}),
       layer("submanifold_conv", {{"out_channels", whole(4)}, {"kernel_size", Integers{3, 5}}},
             "c1"),
       layer("relu", {}),
       layer("sparse_conv",
             {{"out_channels", whole(5)}, {"kernel_size", whole(3)}, {"padding", whole(1)}}, "c2"),
       layer("to_dense", {}), layer("flatten", {}),
       layer("linear", {{"out_features", whole(3)}}, "f")},
      {1, 30, 3}, plane);
  const auto dense =
      row_network({layer("sparse_points", {}), layer("to_dense", {}),
                   layer("conv2d",
                         {{"out_channels", whole(4)},
                          {"kernel_size", Integers{3, 5}},
                          {"padding", Integers{1, 2}}},
                         "c1"),
                   layer("relu", {}),
                   layer("conv2d",
                         {{"out_channels", whole(5)},
                          {"kernel_size", whole(3)},
                          {"padding", whole(1)},
                          {"stride", whole(2)}},
                         "c2"),
                   layer("flatten", {}), layer("linear", {{"out_features", whole(3)}}, "f")},
                  {1, 30, 3}, plane);
  const SharedSites sites = some_sites({2, 2, {1, 9, 8}}, 0.2);
  const Tensor x = points_of(*sites, normal({sites->count(), 1}, DType::f32));
  const Variable a = rows->forward(Variable(x)), b = dense->forward(Variable(x));
  EXPECT_TRUE(near(a.value(), b.value(), 1e-5, 1e-5));
  const Tensor dy = normal(a.shape(), DType::f32, 4);
  a.backward(dy);
  b.backward(dy);
  const auto p = rows->parameters(), q = dense->parameters();
  ASSERT_EQ(p.size(), q.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    EXPECT_EQ(p[i].name, q[i].name);
    EXPECT_TRUE(near(p[i].variable.grad(), q[i].variable.grad(), 1e-4, 1e-4)) << p[i].name;
  }
}

TEST(RowNetwork, ShapesAreThoseOfTheImageThatRowsStandFor) {
  const auto network = row_network(deep_network(), {1, 40, 4}, kVolume);
  std::vector<std::string> seen;
  network->walk({{7, 40, 4}}, [&](Module& module, const Shapes& inputs) {
    const Shape& shape = inputs[0];
    seen.push_back(cat(module.kind(), " ", shape));
    const auto heavy = module.operator_use(shape);
    if (heavy != nullptr) {
      EXPECT_GT(heavy->nominal_flops(), 0);
    }
  });
  EXPECT_EQ(seen[0], "sparse_points [7,40,4]");
  EXPECT_EQ(seen[1], "submanifold_conv [7,1,8,9,10]");
  EXPECT_EQ(network->output_shape({7, 40, 4}), (Shape{7, 3}));
}

TEST(RowNetwork, RunsAsDynamicGraphsAndSaysWhy) {
  const auto network = row_network(deep_network(), {1, 40, 4}, kVolume);
  std::string why;
  EXPECT_EQ(StepPlan::make(*network, {2, 40, 4}, PlanMode::training, &why), nullptr);
  EXPECT_NE(why.find("sites change from batch to batch"), std::string::npos) << why;
}

// Reads the pixels at the sites of the first batch.
class Pixels final : public Module {
 public:
  explicit Pixels(SharedSites sites) : sites_(std::move(sites)) {}
  std::string kind() const override { return "pixels"; }
  Variable forward(const Variable& x) override { return rows_of_image(x, *sites_); }
  Shape output_shape(const Shape& input) const override { return {sites_->count(), input[1]}; }

 private:
  SharedSites sites_;
};

// A graph would use these sites in every step.
TEST(RowNetwork, OperationsOnSitesAreNotCompiled) {
  Pixels network(sites_of_image(Tensor::full({2, 3, 4, 4}, 1.0)));
  std::string why;
  EXPECT_EQ(StepPlan::make(network, {2, 3, 4, 4}, PlanMode::inference, &why), nullptr);
  EXPECT_NE(why.find("sites change from batch to batch"), std::string::npos) << why;
}

TEST(RowNetwork, BothWaysOfAResidualBlockShareTheirSites) {
  const auto levels = std::make_shared<SiteLevels>(SiteGrid{3, 1, {8, 8, 8}});
  const SparseKernel step{.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}};
  EXPECT_EQ(levels->coarser(0, step), 1);
  EXPECT_EQ(levels->coarser(0, step), 1);
  EXPECT_EQ(levels->coarser(1, step), 2);
  EXPECT_EQ(levels->coarser(0, {.size = {2, 2, 2}, .stride = {2, 2, 2}}), 3);
  EXPECT_EQ(levels->grid(2).text(), "1x2x2x2");
  levels->begin(some_sites({3, 2, {8, 8, 8}}, 0.1));
  EXPECT_EQ(levels->strided(1), levels->strided(1));
  EXPECT_EQ(levels->submanifold(1, {.size = {3, 3, 3}}),
            levels->submanifold(1, {.size = {3, 3, 3}}));
  EXPECT_EQ(levels->inverse(2)->out_sites(), levels->sites(1));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected sites in the grid 1x8x8x8",
               levels->begin(some_sites({3, 2, {8, 8, 9}}, 0.1)));
}

TEST(RowNetwork, TheAssumedSampleIsASurface) {
  const SharedSites ring = assumed_sites({2, 1, {1, 28, 28}});
  EXPECT_GT(ring->count(), 28);
  EXPECT_LT(ring->count(), 4 * 28);
  const SharedSites shell = assumed_sites({3, 5, {16, 20, 24}});
  EXPECT_EQ(shell->grid().batch, 1);
  EXPECT_GT(shell->count(), 16 * 16);
  EXPECT_GT(assumed_sites({2, 1, {1, 1, 1}})->count(), 0);
}

// ---- what is refused ----

std::string refusal(const std::vector<LayerSpec>& specs, const Shape& input = {1, 40, 4},
                    std::vector<std::int64_t> grid = kVolume) {
  return error_of([&] { row_network(specs, input, std::move(grid)); });
}

void expect_refusal(const std::string& sentence, const std::string& part) {
  EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
}

LayerSpec points() { return layer("sparse_points", {}, "points"); }
LayerSpec submanifold(std::map<std::string, OptionValue> more = {}) {
  more.insert({{"out_channels", whole(4)}, {"kernel_size", whole(3)}});
  return layer("submanifold_conv", more, "c1");
}

TEST(RowNetworkMistakes, ADenseLayerBehindRowsNamesTheWayOut) {
  for (const char* type : {"conv2d", "batch_norm2d", "max_pool2d", "linear", "flatten"}) {
    std::map<std::string, OptionValue> options;
    if (std::string(type) == "conv2d")
      options = {{"out_channels", whole(4)}, {"kernel_size", whole(3)}};
    if (std::string(type) == "max_pool2d") options = {{"kernel_size", whole(2)}};
    if (std::string(type) == "linear") options = {{"out_features", whole(2)}};
    const std::string sentence = refusal({points(), submanifold(), layer(type, options, "d2")});
    expect_refusal(sentence, cat("layer 'd2' (", type));
    expect_refusal(sentence, "rows of sites that 'points' makes; put 'to_dense' before it");
    expect_refusal(sentence, "'sparse_global_pool'");
  }
}

TEST(RowNetworkMistakes, ASparseLayerOnImagesNamesTheWayIn) {
  expect_refusal(refusal({submanifold()}, {1, 3, 8, 8}), "put 'to_sparse' before it");
  expect_refusal(refusal({submanifold()}), "put 'sparse_points' before it");
  expect_refusal(refusal({points(), submanifold(), layer("to_dense", {}), submanifold()}),
                 "'c1' twice");
  expect_refusal(refusal({points(), layer("to_dense", {}),
                          layer("sparse_max_pool", {{"kernel_size", whole(2)}})}),
                 "put 'to_sparse' before it");
  expect_refusal(refusal({layer("to_sparse", {})}), "expected an image [N,C,H,W] or a volume");
  expect_refusal(refusal({points(), layer("sparse_points", {}, "more")}),
                 "got the rows of sites that 'points' makes");
}

TEST(RowNetworkMistakes, AnInverseNeedsAStepToUndo) {
  const LayerSpec inverse = layer("sparse_inverse_conv", {{"out_channels", whole(2)}}, "u");
  expect_refusal(refusal({points(), submanifold(), inverse}),
                 "expected a strided step to undo, got rows on the sites that 'points' makes");
  const LayerSpec down =
      layer("sparse_conv", {{"out_channels", whole(4)}, {"kernel_size", whole(2)}}, "down");
  expect_refusal(refusal({points(), down, inverse,
                          layer("sparse_inverse_conv", {{"out_channels", whole(2)}}, "v")}),
                 "(undone already: down)");
  expect_refusal(
      refusal({points(), down,
               layer("sparse_inverse_conv", {{"out_channels", whole(2)}, {"undo", word("dwn")}})}),
      "got 'dwn'; did you mean 'down'?");
}

TEST(RowNetworkMistakes, KeysAndWordsAreChecked) {
  expect_refusal(refusal({points(), submanifold({{"strid", whole(2)}})}), "unknown option 'strid'");
  expect_refusal(refusal({points(), layer("submanifold_conv", {{"out_channels", whole(4)},
                                                               {"kernel_size", whole(2)}})}),
                 "odd");
  expect_refusal(refusal({points(), layer("submanifold_conv", {{"out_channels", whole(4)},
                                                               {"kernel_size", Integers{3, 3}}})}),
                 "'kernel_size' to be one number or 3 ([t, h, w]), got [3, 3]");
  expect_refusal(refusal({points(), submanifold({{"algorithm", word("fast")}})}), "'fast'");
  expect_refusal(refusal({points(), submanifold({{"backward_weight", word("nativ")}})}),
                 "did you mean 'native'?");
  expect_refusal(refusal({points()}, {1, 40, 4}, {}), "expected 'grid' to be [H,W] or [T,H,W]");
  expect_refusal(refusal({points()}, {1, 40, 3}), "at least one feature");
  expect_refusal(refusal({points(), layer("sparse_max_pool", {{"kernel_size", whole(20)}})}),
                 "kernel");
}

TEST(RowNetworkMistakes, RowsThatAreNotThoseOfTheBatchAreRefused) {
  const auto levels = std::make_shared<SiteLevels>(SiteGrid{2, 1, {1, 5, 5}});
  LayerContext context;
  SparseConv conv({.in_channels = 2, .out_channels = 3, .kernel = {.size = {1, 3, 3}}}, levels, 0,
                  0, context);
  EXPECT_ERROR(ErrorKind::kInvalid, "expected the sites of a batch, got none yet",
               conv.forward(Variable(normal({4, 2}, DType::f32))));
  levels->begin(some_sites({2, 2, {1, 5, 5}}, 0.3));
  EXPECT_ERROR(ErrorKind::kInvalid, "a row for each site of level 0",
               conv.forward(Variable(normal({99, 2}, DType::f32))));
}

}  // namespace
}  // namespace convscope::testing
