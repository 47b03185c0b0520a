// SPDX-License-Identifier: Apache-2.0
// layer_graph_test.cpp: tests networks with branches: their names, shapes, errors, and the compiled
// step, which must have the same gradients as the eager one.
#include "layers/layer_graph/layer_graph.h"

#include <gtest/gtest.h>

#include "tests/support/compiled_step.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::expect_compiled_like_eager;
using testing::near;
using testing::normal;

LayerSpec layer(const std::string& type, const std::string& name,
                const std::vector<std::string>& from = {}) {
  return {.type = type, .name = name, .options = {}, .from = from};
}

LayerSpec conv(const std::string& name, std::int64_t channels, std::int64_t kernel,
               const std::vector<std::string>& from = {}) {
  LayerSpec out = layer("conv2d", name, from);
  out.options.set("out_channels", channels);
  out.options.set("kernel_size", std::vector<std::int64_t>{kernel});
  out.options.set("padding", std::vector<std::int64_t>{kernel / 2});
  return out;
}

std::shared_ptr<Module> build(const std::vector<LayerSpec>& specs, const Shape& input) {
  LayerContext context;
  return build_layers(specs, input, context);
}

// Two branches of one image, joined; and a branch around a layer.
std::vector<LayerSpec> inception() {
  return {conv("a", 4, 3),
          layer("relu", "r"),
          conv("b", 3, 1, {"input"}),
          layer("concat", "join", {"r", "b"}),
          conv("c", 7, 3),
          layer("add", "sum", {"c", "join"}),
          layer("sigmoid", "gate", {"sum"}),
          layer("mul", "product", {"gate", "c", "sum"})};
}

TEST(LayerGraph, NamesShapesAndValues) {
  const auto network = build(inception(), {1, 2, 6, 6});
  EXPECT_EQ(network->kind(), "layer_graph");
  std::vector<std::string> names;
  for (const NamedParameter& p : network->parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.weight", "a.bias", "b.weight", "b.bias", "c.weight",
                                             "c.bias"}));
  EXPECT_EQ(network->output_shape({5, 2, 6, 6}), (Shape{5, 7, 6, 6}));
  std::vector<std::string> seen;
  network->walk({{5, 2, 6, 6}}, [&](Module& one, const Shapes& inputs) {
    seen.push_back(cat(one.kind(), " ", inputs.size(), " ", inputs[0][1]));
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"conv2d 1 2", "relu 1 4", "conv2d 1 2", "concat 2 4",
                                            "conv2d 1 7", "add 2 7", "sigmoid 1 7", "mul 3 7"}));

  const auto& graph = dynamic_cast<LayerGraph&>(*network);
  const Variable x(normal({5, 2, 6, 6}, DType::f32, 3));
  const auto run = [&](std::size_t i, const Variables& in) {
    return (*graph.entries()[i].layer)(in)[0];
  };
  const Variable join = run(3, {run(1, {run(0, {x})}), run(2, {x})});
  const Variable c = run(4, {join}), sum = run(5, {c, join});
  const Variable product = run(7, {run(6, {sum}), c, sum});
  EXPECT_TRUE(near(network->forward(x).value(), product.value(), 0, 0));
}

TEST(LayerGraph, ACompiledStepHasTheGradientsOfAnEagerStep) {
  expect_compiled_like_eager(inception(), {3, 2, 6, 6}, {}, 1e-5);
}

// One operation of the tape takes at most 6 inputs.
TEST(LayerGraph, ConcatTakesManyInputs) {
  std::vector<LayerSpec> specs = {conv("a", 2, 1)};
  const std::vector<std::string> from(13, "a");
  specs.push_back(layer("concat", "join", from));
  EXPECT_EQ(build(specs, {1, 1, 3, 3})->output_shape({2, 1, 3, 3}), (Shape{2, 26, 3, 3}));
  expect_compiled_like_eager(specs, {2, 1, 3, 3}, {}, 1e-5);
}

// A result of a split may be read twice, or not at all.
TEST(LayerGraph, SplitHasSeveralResults) {
  LayerSpec split = layer("split", "s");
  split.options.set("sizes", std::vector<std::int64_t>{1, 3, 2});
  const std::vector<LayerSpec> specs = {conv("a", 6, 3), split, layer("tanh", "t", {"s.1"}),
                                        layer("mul", "product", {"t", "s.1"}),
                                        layer("concat", "join", {"s.2", "product"})};
  const auto network = build(specs, {1, 2, 5, 5});
  EXPECT_EQ(network->output_shape({3, 2, 5, 5}), (Shape{3, 5, 5, 5}));
  expect_compiled_like_eager(specs, {3, 2, 5, 5}, {}, 1e-5);
  EXPECT_NE(error_of([&] {
              build({conv("a", 5, 3), split}, {1, 2, 5, 5});
            }).find("[split] expected x [N,6,..] because the sum of sizes is 6, got [1,5,5,5]"),
            std::string::npos);
  // Without names, a layer reads all results of the layer before it.
  EXPECT_EQ(build({conv("a", 6, 3), split, layer("concat", "c")}, {1, 2, 5, 5})->kind(),
            "sequential");
}

TEST(LayerGraph, AListInOrderStaysASequential) {
  const std::vector<LayerSpec> chain = {conv("a", 2, 1, {"input"}), layer("relu", "", {"a"}),
                                        layer("relu", "")};
  const auto network = build(chain, {1, 1, 3, 3});
  EXPECT_EQ(network->kind(), "sequential");
  EXPECT_EQ(connect_layers(chain).names, (std::vector<std::string>{"a", "relu_1", "relu_2"}));
}

TEST(LayerGraph, ShapesThatDoNotFitAreShownWithTheNamesOfTheInputs) {
  const auto refusal = [](std::vector<LayerSpec> specs) {
    return error_of([&] { build(specs, {1, 2, 6, 6}); });
  };
  EXPECT_EQ(
      refusal({conv("a", 4, 3), conv("b", 3, 3), layer("add", "sum", {"a", "b"})}),
      "[layers] layer 'sum' (add, inputs 'a' [1,4,6,6], 'b' [1,3,6,6]): [add] expected shapes "
      "that are equal or 1 at each axis, counted from the last, got [1,4,6,6] and "
      "[1,3,6,6]");
  EXPECT_EQ(refusal({layer("flatten", "f"), layer("mul", "m", {"f", "input"})}),
            "[layers] layer 'm' (mul, inputs 'f' [1,72], 'input' [1,2,6,6]): [mul] expected inputs "
            "with the same number of axes, got [1,72] and [1,2,6,6]");
  LayerSpec pool = layer("max_pool2d", "p");
  pool.options.set("kernel_size", std::vector<std::int64_t>{2});
  LayerSpec placed = layer("concat", "join", {"p", "input"});
  placed.place = "exp.yaml:7:5";
  EXPECT_EQ(refusal({pool, placed}),
            "[config] exp.yaml:7:5: error: layer 'join' (concat, inputs 'p' [1,2,3,3], 'input' "
            "[1,2,6,6]): [concat] expected inputs that differ in axis 1 only, got [1,2,3,3] and "
            "[1,2,6,6]");
  EXPECT_NE(refusal({layer("add", "sum")}).find("[add] expected at least 2 inputs"),
            std::string::npos);
  EXPECT_NE(refusal({conv("a", 4, 3), layer("relu", "r", {"a", "input"})})
                .find("[relu] expected 1 input, got 2"),
            std::string::npos);
  EXPECT_NE(refusal({conv("a", 4, 3), layer("relu", "r", {"a.1"})})
                .find("[from] expected a result of 'a' from 0 to 0, got 1"),
            std::string::npos);
}

TEST(LayerGraph, WrongConnectionsAreErrors) {
  const auto mistakes = [](const std::vector<LayerSpec>& specs) {
    std::vector<std::string> out;
    for (const Connections::Mistake& one : connect_layers(specs).mistakes) {
      out.push_back(cat(one.layer, " ", one.key, " ", one.entry, ": ", one.sentence));
    }
    return join(out, "\n");
  };
  EXPECT_EQ(mistakes({layer("relu", "conv"), layer("relu", "b", {"input", "cnov"})}),
            "1 from 1: unknown layer 'cnov'; did you mean 'conv'?");
  EXPECT_EQ(mistakes({layer("relu", "a"), layer("relu", "b", {"zzzzzz"})}),
            "1 from 0: unknown layer 'zzzzzz' (known here: a, input)");
  EXPECT_EQ(mistakes({layer("add", "a", {"input", "b"}), layer("relu", "b")}),
            "0 from 1: expected a layer above this one, because layers run in the order of the "
            "list (so a cycle is impossible), got 'b', which follows");
  EXPECT_EQ(mistakes({layer("add", "a", {"input", "a.0"})}),
            "0 from 1: expected a layer above this one, because layers run in the order of the "
            "list (so a cycle is impossible), got 'a.0', the layer itself");
  EXPECT_EQ(mistakes({layer("relu", "a"), layer("relu", "b", {"input"})}),
            "0  0: expected a layer that reads the result of 'a', because only the result of the "
            "last layer leaves the network, got none");
  EXPECT_EQ(mistakes({layer("relu", "a"), layer("relu", "a.b")}),
            "1 name 0: expected no name that continues another one because dots join the names of "
            "parameters, got 'a' and 'a.b'");
  EXPECT_EQ(mistakes({layer("relu", "input")}),
            "0 name 0: expected another name because 'input' is the input of the network");
}

}  // namespace
}  // namespace convscope
