// SPDX-License-Identifier: Apache-2.0
// plan_layouts_test.cpp: tests that compiled steps on NCHW16c images agree with those on NCHW.
// Images are converted only at the ends of the network, and operations without NCHW16c kernels run
// in NCHW.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/ops/elementwise.h"
#include "framework/ops/reshape.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"
#include "layers/layer_types.h"
#include "layers/plan/step_plan.h"
#include "tests/layers/layer_cases.h"

namespace convscope {
namespace {

using Ints = std::vector<std::int64_t>;
using Pairs = std::initializer_list<std::pair<const char*, OptionValue>>;

LayerSpec layer(const char* type, const char* name, Pairs options = {}) {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : options) out.options.set(key, value);
  return out;
}

LayerSpec conv(const char* name, std::int64_t k, std::int64_t r, std::int64_t stride = 1,
               bool bias = true) {
  return layer("conv2d", name,
               {{"out_channels", k},
                {"kernel_size", Ints{r}},
                {"padding", Ints{r / 2}},
                {"stride", Ints{stride}},
                {"bias", bias}});
}

LayerContext context_of(const char* layout, const char* algorithm = testing::kDirect) {
  LayerContext context;
  context.seed = 5;
  context.conv_policy = [layout, algorithm](const std::string&) {
    return Conv2dPolicy{algorithm, algorithm, algorithm, layout};
  };
  return context;
}

std::shared_ptr<Module> network(const std::vector<LayerSpec>& specs, const Shape& input,
                                const char* layout, const char* algorithm = testing::kDirect) {
  LayerContext context = context_of(layout, algorithm);
  return build_layers(specs, input, context);
}

// Makes images with a large mean, so that a missing lane changes every sum noticeably.
Tensor images(const Shape& shape, std::uint64_t stream) {
  const Tensor x = Tensor::empty(shape);
  Generator random(11, stream);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 0.5f + random.normal();
  return x;
}

Tensor labels(std::int64_t n) {
  const Tensor out = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) out.data<std::int32_t>()[i] = static_cast<int>(i * 3 % 7);
  return out;
}

// Results differ only by the summation order. Each sum is exact to about 16 eps of its terms, and a
// few layers follow each other. The tolerance, 1e-4 of the largest number, is about ten times the
// error.
void expect_close(const Tensor& a, const Tensor& b, const std::string& what,
                  double tolerance = 1e-4) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  double largest = 0, difference = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.data<float>()[i])));
    difference = std::max(difference, std::abs(static_cast<double>(a.data<float>()[i]) -
                                               static_cast<double>(b.data<float>()[i])));
  }
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE(difference, tolerance * largest) << what;
}

int nchw16c_convolutions(const StepPlan& plan) {
  const std::vector<StepPlan::Line> lines = plan.lines();
  return static_cast<int>(std::ranges::count_if(lines, [](const StepPlan::Line& line) {
    return line.text.starts_with("conv2d ") && line.text.find(" nchw16c") != std::string::npos;
  }));
}

// Returns the number of copies between layouts without that of the images. Whether the first layer
// reads [N,C,H,W] or a copy in blocks depends on the estimates of this processor's instruction set.
int copies_after_images(const StepPlan& plan) {
  return plan.conversions() - (plan.lines().front().text == "copy to nchw16c" ? 1 : 0);
}

// Two training steps in both layouts. `convolutions`, `copies`: expected in NCHW16c.
void expect_same_training(const std::vector<LayerSpec>& specs, const Shape& input, int convolutions,
                          int copies) {
  const auto plain = network(specs, input, "nchw");
  const auto nchw16c = network(specs, input, "nchw16c");
  const auto a = StepPlan::make(*plain, input, PlanMode::training, nullptr);
  const auto b = StepPlan::make(*nchw16c, input, PlanMode::training, nullptr);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(a->conversions(), 0) << a->text();
  EXPECT_EQ(nchw16c_convolutions(*a), 0) << a->text();
  EXPECT_EQ(copies_after_images(*b), copies) << b->text();
  EXPECT_EQ(nchw16c_convolutions(*b), convolutions) << b->text();
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = images(input, step);
    const double loss = a->forward(x, labels(input[0]));
    EXPECT_NEAR(b->forward(x, labels(input[0])), loss, 1e-5 * std::abs(loss));
    a->backward();
    b->backward();
    const auto plain_parameters = plain->parameters();
    const auto nchw16c_parameters = nchw16c->parameters();
    for (std::size_t i = 0; i < plain_parameters.size(); ++i) {
      expect_close(plain_parameters[i].variable.grad(), nchw16c_parameters[i].variable.grad(),
                   plain_parameters[i].name);
    }
    for (std::size_t i = 0; i < plain->buffers().size(); ++i) {
      expect_close(plain->buffers()[i].tensor, nchw16c->buffers()[i].tensor,
                   plain->buffers()[i].name);
    }
  }
}

void expect_same_inference(const std::vector<LayerSpec>& specs, const Shape& input,
                           int convolutions, int copies) {
  const auto plain = network(specs, input, "nchw");
  const auto nchw16c = network(specs, input, "nchw16c");
  const auto a = StepPlan::make(*plain, input, PlanMode::inference, nullptr);
  const auto b = StepPlan::make(*nchw16c, input, PlanMode::inference, nullptr);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(copies_after_images(*b), copies) << b->text();
  EXPECT_EQ(nchw16c_convolutions(*b), convolutions) << b->text();
  a->prepare();
  b->prepare();
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = images(input, step);
    expect_close(a->infer(x), b->infer(x), "result");
  }
}

std::vector<LayerSpec> ending(std::vector<LayerSpec> specs) {
  specs.push_back(layer("flatten", "flat"));
  specs.push_back(layer("linear", "f", {{"out_features", std::int64_t{7}}}));
  return specs;
}

const Shape kImages{3, 20, 11, 12};  // the second block has 4 channels

// The first convolution can read NCHW images, so the images are not converted.
TEST(PlanLayouts, ConvolutionsWithPoolsAndActivationsTrainAlikeInBoth) {
  const std::vector<LayerSpec> specs =
      ending({conv("c1", 24, 3), layer("relu", "r1"),
              layer("max_pool2d", "p1", {{"kernel_size", Ints{3}}, {"stride", Ints{2}}}),
              conv("c2", 40, 1), layer("tanh", "t1"), conv("c3", 17, 3, 2), layer("relu", "r2"),
              layer("avg_pool2d", "p2", {{"kernel_size", Ints{2}}})});
  expect_same_training(specs, kImages, 3, 2);  // the flattened values, and their gradient
  expect_same_inference(specs, kImages, 3, 1);
}

TEST(PlanLayouts, BatchNormTrainsAndInfersAlikeInBoth) {
  const std::vector<LayerSpec> specs =
      ending({conv("c1", 24, 3, 1, false), layer("batch_norm2d", "b1"), layer("relu", "r1"),
              conv("c2", 32, 3, 2, false), layer("batch_norm2d", "b2"), layer("tanh", "t1"),
              layer("batch_norm2d", "b3")});
  expect_same_training(specs, kImages, 2, 2);
  expect_same_inference(specs, kImages, 2, 1);
}

// 32 channels of a single pixel have the same order in both layouts, so no conversion is needed.
TEST(PlanLayouts, WhatLiesAlikeInBothIsNotCopied) {
  const std::vector<LayerSpec> specs =
      ending({conv("c1", 32, 3), layer("relu", "r1"),
              layer("adaptive_avg_pool2d", "a", {{"output_size", Ints{1, 1}}})});
  expect_same_training(specs, kImages, 1, 0);
  expect_same_inference(specs, kImages, 1, 0);
}

TEST(PlanLayouts, AResultThatIsAnImageIsGivenAsUsersSeeIt) {
  expect_same_inference({conv("c1", 24, 3), layer("relu", "r1"), conv("c2", 20, 3)}, kImages, 2, 1);
}

// A layer that supports only NCHW is between two layers that use NCHW16c.
TEST(PlanLayouts, CopiesStandAroundWhatKnowsOneLayoutOnly) {
  const std::vector<LayerSpec> specs =
      ending({conv("c1", 24, 3), layer("sigmoid", "s1"), conv("c2", 20, 3)});
  // Six conversions: from c1 to s1, from s1 to c2, from c2 to the flatten layer, and the three
  // gradients back.
  expect_same_training(specs, kImages, 2, 6);
}

// The algorithm of a convolution does not support NCHW16c, so images stay in NCHW.
TEST(PlanLayouts, AnAlgorithmWithoutNchw16cStaysAsItIs) {
  const Shape input{2, 16, 9, 9};
  const auto model =
      network(ending({conv("c1", 16, 3), layer("relu", "r1")}), input, "nchw16c", "im2col_gemm");
  const auto plan = StepPlan::make(*model, input, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(nchw16c_convolutions(*plan), 0) << plan->text();
  EXPECT_EQ(plan->conversions(), 0) << plan->text();
}

// body(first(x)) + shortcut(first(x)): a value with two readers.
class Block final : public Module {
 public:
  Block(std::shared_ptr<Module> first, std::shared_ptr<Module> body,
        std::shared_ptr<Module> shortcut)
      : first_(add_child("first", std::move(first))),
        body_(add_child("body", std::move(body))),
        shortcut_(add_child("shortcut", std::move(shortcut))) {}
  std::string kind() const override { return "block"; }
  Variable forward(const Variable& x) override {
    const Variable both = (*first_)(x);
    const Variable sum = (*body_)(both) + (*shortcut_)(both);
    const Shape& shape = sum.shape();
    return reshape(sum, {shape[0], shape.numel() / shape[0]});
  }
  Shape output_shape(const Shape& input) const override { return body_->output_shape(input); }

 private:
  std::shared_ptr<Module> first_, body_, shortcut_;
};

using Specs = std::vector<LayerSpec>;
void expect_same_block(const Specs& first, const Specs& body, const Specs& shortcut,
                       int convolutions, int copies) {
  const auto block = [&](const char* layout) {
    const auto before = network(first, kImages, layout);
    const Shape& both = before->output_shape(kImages);
    return std::make_shared<Block>(before, network(body, both, layout),
                                   network(shortcut, both, layout));
  };
  const auto plain = block("nchw");
  const auto nchw16c = block("nchw16c");
  const auto a = StepPlan::make(*plain, kImages, PlanMode::training, nullptr);
  const auto b = StepPlan::make(*nchw16c, kImages, PlanMode::training, nullptr);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(nchw16c_convolutions(*b), convolutions) << b->text();
  EXPECT_EQ(copies_after_images(*b), copies) << b->text();
  const Tensor x = images(kImages, 1);
  const double loss = a->forward(x, labels(3));
  EXPECT_NEAR(b->forward(x, labels(3)), loss, 1e-5 * std::abs(loss));
  a->backward();
  b->backward();
  for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
    expect_close(plain->parameters()[i].variable.grad(), nchw16c->parameters()[i].variable.grad(),
                 plain->parameters()[i].name);
  }
}

TEST(PlanLayouts, ResidualsMeetInOneLayout) {
  expect_same_block({conv("c0", 20, 3)},
                    {conv("c1", 24, 3, 2), layer("relu", "r"), conv("c2", 20, 3)},
                    {conv("c3", 20, 1, 2)}, 4, 2);
}

// Two convolutions read one NCHW value. The value is converted once, and the two gradients are
// added before the conversion back.
TEST(PlanLayouts, AValueWithTwoReadersIsCopiedOnce) {
  expect_same_block({conv("c0", 20, 3), layer("sigmoid", "s")}, {conv("c1", 24, 3)},
                    {conv("c2", 24, 1)}, 3, 6);
}

// One layer reads an NCHW16c value directly, another reads a converted copy. The gradients of both
// must be added.
TEST(PlanLayouts, GradientsOfBothLayoutsAreAdded) {
  expect_same_block({conv("c0", 20, 3)}, {conv("c1", 24, 3)},
                    {layer("sigmoid", "s"), conv("c2", 24, 1)}, 3, 6);
  expect_same_block({conv("c0", 20, 3)}, {layer("sigmoid", "s"), conv("c2", 24, 1)},
                    {conv("c1", 24, 3)}, 3, 6);
}

std::shared_ptr<Module> model(const char* name, Pairs given, const char* layout) {
  LayerContext context = context_of(layout, "auto");
  const ModelType& type = model_types().get(name);
  Options options;
  for (const auto& [key, value] : given) options.set(key, value);
  return type.build(complete_options(type.fields, options, name), {1, 3, 20, 20}, 7, context);
}

// Returns the largest difference between the gradients of two networks, divided by the largest of
// all gradients. (The gradient of a bias that the next batch norm removes consists only of rounding
// errors, so it cannot be the divisor.)
double gradient_difference(Module& a, Module& b, std::string& where) {
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    const Tensor a_gradient = a.parameters()[i].variable.grad();
    const Tensor b_gradient = b.parameters()[i].variable.grad();
    for (std::int64_t j = 0; j < a_gradient.numel(); ++j) {
      largest = std::max(largest, std::abs(a_gradient.at(j)));
      const double here = std::abs(a_gradient.at(j) - b_gradient.at(j));
      if (here <= difference) continue;
      difference = here;
      where = cat(a.parameters()[i].name, "[", j, "] ", a_gradient.at(j), " ", b_gradient.at(j));
    }
  }
  return difference / largest;
}

// Compares whole networks with the algorithms that `auto` chooses. If the input of a ReLU is within
// a rounding error of 0, the ReLU may pass it in one layout only. All earlier gradients then differ
// by percents. This happens in about one batch of eight, so one of five batches has to agree; a
// real mistake would show in all five.
void expect_same_network(const char* name, Pairs options) {
  const Shape input{4, 3, 20, 20};
  double least = 1;
  std::string where;
  for (std::uint64_t batch = 1; batch <= 5 && least > 1e-3; ++batch) {
    const auto plain = model(name, options, "nchw");
    const auto nchw16c = model(name, options, "nchw16c");
    const auto a = StepPlan::make(*plain, input, PlanMode::training, nullptr);
    const auto b = StepPlan::make(*nchw16c, input, PlanMode::training, nullptr);
    ASSERT_NE(a, nullptr);
    ASSERT_NE(b, nullptr);
    EXPECT_GE(nchw16c_convolutions(*b), 20) << b->text();
    // Without wide vectors, dw of the first layer is cheaper in NCHW.
    EXPECT_LE(b->conversions(), current_isa() < Isa::avx2 ? 3 : 2) << b->text();
    const Tensor x = images(input, batch);
    const double loss = a->forward(x, labels(4));
    EXPECT_NEAR(b->forward(x, labels(4)), loss, 1e-4 * std::abs(loss)) << name;
    a->backward();
    b->backward();
    least = std::min(least, gradient_difference(*plain, *nchw16c, where));
    const auto eval_a = StepPlan::make(*plain, input, PlanMode::inference, nullptr);
    const auto eval_b = StepPlan::make(*nchw16c, input, PlanMode::inference, nullptr);
    eval_a->prepare();
    eval_b->prepare();
    expect_close(eval_a->infer(x), eval_b->infer(x), name, 1e-3);
  }
  EXPECT_LE(least, 1e-3) << name << " " << where;
}

TEST(PlanLayouts, WholeNetworksAreAlikeInBoth) {
  const auto cifar = std::string("cifar");
  expect_same_network("resnet18", {{"stem", cifar}, {"widths", Ints{16, 24, 32, 40}}});
  expect_same_network("mobilenet_v1", {{"stem", cifar}, {"width_multiplier", 0.25}});
  expect_same_network("mobilenet_v2",
                      {{"stem", cifar}, {"width_multiplier", 0.35}, {"dropout", 0.0}});
}

// `auto` compares estimates: a stack of wide layers uses one layout as a whole; which one depends
// on
// the estimates of this processor's instruction set. A single wide layer between NCHW layers stays
// in NCHW, because the conversions cost more than it gains.
TEST(PlanLayouts, AutoTakesWhatIsCheaperTogether) {
  const Shape input{4, 64, 28, 28};
  const auto alone =
      network(ending({layer("sigmoid", "s"), conv("c", 2, 1), layer("sigmoid", "t")}), input,
              "auto", "auto");
  const auto plan = StepPlan::make(*alone, input, PlanMode::inference, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->conversions(), 0) << plan->text();
  const auto stack =
      network(ending({conv("c1", 64, 3), layer("relu", "r1"), conv("c2", 64, 3),
                      layer("relu", "r2"), conv("c3", 64, 3), layer("relu", "r3"),
                      layer("adaptive_avg_pool2d", "a", {{"output_size", Ints{1, 1}}})}),
              input, "auto", "auto");
  const auto wide = StepPlan::make(*stack, input, PlanMode::inference, nullptr);
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(nchw16c_convolutions(*wide) % 3, 0) << wide->text();
  EXPECT_EQ(copies_after_images(*wide), 0) << wide->text();
}

}  // namespace
}  // namespace convscope
