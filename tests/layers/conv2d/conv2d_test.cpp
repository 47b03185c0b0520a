// SPDX-License-Identifier: Apache-2.0
// conv2d_test.cpp: tests the differentiable convolution and its layer: gradients, shapes, errors,
// and that each layer selects its algorithm once.
#include "layers/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "framework/memory/memory.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

std::vector<Variable> leaves(const Shape& x, const Shape& w, DType dtype) {
  return {Variable(testing::normal(x, dtype, 1), true),
          Variable(testing::normal(w, dtype, 2), true),
          Variable(testing::normal({w[0]}, dtype, 3), true)};
}

struct GradientCase {
  const char* name;
  Shape x, w;
  Conv2dParams params;
};

const GradientCase kGradientCases[] = {
    {"plain", {2, 3, 5, 4}, {4, 3, 3, 2}, {}},
    {"stride and padding",
     {1, 2, 6, 7},
     {2, 2, 3, 3},
     {.stride_h = 2, .stride_w = 3, .padding = {1, 0, 2, 1}}},
    {"dilation",
     {1, 1, 7, 7},
     {2, 1, 3, 2},
     {.padding = {1, 1, 1, 1}, .dilation_h = 2, .dilation_w = 3}},
    {"groups", {2, 4, 4, 4}, {6, 2, 2, 2}, {.groups = 2}},
    {"depthwise", {1, 3, 4, 5}, {3, 1, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 3}},
    {"kernel as large as the image", {2, 2, 3, 4}, {3, 2, 3, 4}, {}},
};

TEST(Conv2d, GradientsAgreeWithDifferencesInDouble) {
  for (const GradientCase& one : kGradientCases) {
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& v) { return conv2d(v[0], v[1], v[2], one.params); },
        leaves(one.x, one.w, DType::f64));
    EXPECT_TRUE(result.ok) << one.name << ": " << result.str();
  }
}

TEST(Conv2d, GradientsFlowThroughEveryPaddingMode) {
  for (int i = 0; i < kPadModeCount; ++i) {
    const auto mode = static_cast<PadMode>(i);
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& v) {
          return conv2d(pad2d(v[0], {1, 2, 2, 0}, mode), v[1], v[2], {.stride_w = 2});
        },
        leaves({2, 2, 4, 5}, {3, 2, 3, 3}, DType::f64));
    EXPECT_TRUE(result.ok) << name_of(mode) << ": " << result.str();
  }
}

TEST(Conv2d, WeightGradientsAccumulateUntilZeroGrad) {
  std::vector<Variable> v = leaves({2, 3, 5, 5}, {4, 3, 3, 3}, DType::f32);
  const Tensor dy = testing::normal({2, 4, 3, 3}, DType::f32, 9);
  conv2d(v[0], v[1], v[2]).backward(dy);
  const Tensor once = v[1].grad().clone();
  const Tensor bias_once = v[2].grad().clone();
  conv2d(v[0], v[1], v[2]).backward(dy);
  // The second backward pass adds the gradient again, so the result is twice the first gradient. It
  // is summed in another order and rounded once more.
  for (std::int64_t i = 0; i < once.numel(); ++i) {
    EXPECT_NEAR(v[1].grad().at(i), 2 * once.at(i), 1e-5);
  }
  for (std::int64_t i = 0; i < bias_once.numel(); ++i) {
    EXPECT_NEAR(v[2].grad().at(i), 2 * bias_once.at(i), 1e-5);
  }
}

TEST(Conv2d, ComputesNoGradientThatNobodyAskedFor) {
  const Variable x(testing::normal({1, 1, 4, 4}, DType::f32, 1));
  Variable w(testing::normal({1, 1, 3, 3}, DType::f32, 2), true);
  conv2d(x, w, Variable()).backward(testing::normal({1, 1, 2, 2}, DType::f32, 3));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(w.grad().defined());
}

TEST(Conv2d, AnEmptyBatchGivesAnEmptyResultAndZeroGradients) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<Variable> v = leaves({0, 3, 5, 5}, {4, 3, 3, 3}, dtype);
    const Variable y = conv2d(v[0], v[1], v[2]);
    EXPECT_EQ(y.shape(), (Shape{0, 4, 3, 3}));
    y.backward(Tensor::empty({0, 4, 3, 3}, dtype));
    for (std::int64_t i = 0; i < v[1].grad().numel(); ++i) ASSERT_EQ(v[1].grad().at(i), 0.0);
    for (std::int64_t i = 0; i < v[2].grad().numel(); ++i) ASSERT_EQ(v[2].grad().at(i), 0.0);
  }
}

TEST(Conv2d, ErrorsSayWhatDoesNotFitAndWhy) {
  const Variable x(Tensor::zeros({8, 3, 28, 28}));
  const Variable w(Tensor::zeros({32, 16, 3, 3}));
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[conv2d] expected x with 16 channels because w is [32,16,3,3] with groups 1, got x "
               "[8,3,28,28]",
               conv2d(x, w, Variable()));
  const Variable big(Tensor::zeros({4, 3, 31, 3}));
  EXPECT_ERROR(ErrorKind::kInvalid,
               "a kernel that fits the padded image, got a kernel height of 31",
               conv2d(x, big, Variable()));
  const Variable w3(Tensor::zeros({4, 3, 3, 3}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected b [4] of the type of x because w is [4,3,3,3]",
               conv2d(x, w3, Variable(Tensor::zeros({3}))));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a padding of 0 to",
               conv2d(x, w3, Variable(), {.padding = {-1, 0, 0, 0}}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a stride of 1 to",
               conv2d(x, w3, Variable(), {.stride_h = 0}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected groups to divide",
               conv2d(Variable(Tensor::zeros({1, 6, 5, 5})), Variable(Tensor::zeros({4, 2, 3, 3})),
                      Variable(), {.groups = 3}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected x of rank 4 [N,C,H,W], got [8,3]",
               conv2d(Variable(Tensor::zeros({8, 3})), w3, Variable()));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected x and w of one type",
               conv2d(x, Variable(Tensor::zeros({4, 3, 3, 3}, DType::f64)), Variable()));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected x of type f32 or f64",
               conv2d(Variable(Tensor::zeros({1, 3, 5, 5}, DType::u8)), w3, Variable()));
}

// ---- the layer ---------------------------------------------------------------------------------

std::shared_ptr<Module> build(Options given, const Shape& input, LayerContext& context) {
  const LayerType& type = layer_types().get("conv2d");
  return type.build(complete_options(type.fields, given, "conv2d"), input, context);
}

Options options(std::initializer_list<std::pair<const char*, OptionValue>> given) {
  Options out;
  for (const auto& [name, value] : given) out.set(name, value);
  return out;
}

using Integers = std::vector<std::int64_t>;

TEST(Conv2dLayer, ReadsItsOptions) {
  LayerContext context;
  const auto layer = build(options({{"out_channels", std::int64_t{6}},
                                    {"kernel_size", Integers{3, 5}},
                                    {"stride", Integers{2, 1}},
                                    {"padding", Integers{1, 0, 2, 3}},
                                    {"groups", std::int64_t{2}}}),
                           {1, 4, 9, 8}, context);
  const auto& conv = dynamic_cast<const Conv2d&>(*layer);
  EXPECT_EQ(conv.problem({7, 4, 9, 8}).text(),
            "n=7,c=4,h=9,w=8,k=6,r=3,s=5,stride=2x1,pad=1x0x2x3,dilation=1,groups=2");
  EXPECT_EQ(layer->output_shape({7, 4, 9, 8}), (Shape{7, 6, 4, 9}));
  EXPECT_EQ(layer->forward(Variable(Tensor::zeros({7, 4, 9, 8}))).shape(), (Shape{7, 6, 4, 9}));
  ASSERT_EQ(layer->parameters().size(), 2u);
  EXPECT_EQ(layer->parameters()[0].variable.shape(), (Shape{6, 2, 3, 5}));
}

TEST(Conv2dLayer, EveryPaddingModeEqualsPaddingByHand) {
  const Variable x(testing::normal({2, 3, 6, 5}, DType::f32, 4));
  for (int i = 0; i < kPadModeCount; ++i) {
    const auto mode = static_cast<PadMode>(i);
    LayerContext context;
    const auto layer = build(options({{"out_channels", std::int64_t{4}},
                                      {"kernel_size", Integers{3}},
                                      {"padding", Integers{1, 2, 0, 2}},
                                      {"padding_mode", std::string(name_of(mode))}}),
                             x.shape(), context);
    const Variable y = layer->forward(x);
    const Variable by_hand = conv2d(pad2d(x, {1, 2, 0, 2}, mode), layer->parameters()[0].variable,
                                    layer->parameters()[1].variable);
    EXPECT_EQ(layer->output_shape(x.shape()), y.shape());
    ASSERT_EQ(y.shape(), by_hand.shape());
    for (std::int64_t j = 0; j < y.value().numel(); ++j) {
      ASSERT_NEAR(y.value().at(j), by_hand.value().at(j), 1e-5) << name_of(mode) << " at " << j;
    }
  }
}

TEST(Conv2dLayer, RefusesWhatItCannotUse) {
  LayerContext context;
  const auto with = [&](const char* name, OptionValue value) {
    Options given = options({{"out_channels", std::int64_t{4}}, {"kernel_size", Integers{3}}});
    given.set(name, std::move(value));
    return build(given, {1, 3, 8, 8}, context);
  };
  EXPECT_ERROR(ErrorKind::kInvalid, "'padding' to be one number",
               with("padding", Integers{1, 2, 3}));
  EXPECT_ERROR(ErrorKind::kInvalid, "'kernel_size' to be one number",
               with("kernel_size", Integers{1, 2, 3}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected groups to divide", with("groups", std::int64_t{2}));
  EXPECT_ERROR(ErrorKind::kUnavailable, "did you mean 'im2col_gemm'?",
               with("algorithm", std::string("im2col_gem")));
}

TEST(Conv2dLayer, TakesThePolicyOfTheRunUnlessItHasItsOwn) {
  LayerContext context;
  context.layer_name = "c1";
  context.conv_policy = [](const std::string& name) {
    return Conv2dPolicy{.forward = name == "c1" ? "reference" : "auto"};
  };
  Options given = options({{"out_channels", std::int64_t{4}}, {"kernel_size", Integers{3}}});
  auto layer = build(given, {1, 3, 8, 8}, context);
  EXPECT_EQ(dynamic_cast<Conv2d&>(*layer).policy().forward, "reference");
  given.set("algorithm", std::string("im2col_gemm"));
  layer = build(given, {1, 3, 8, 8}, context);
  EXPECT_EQ(dynamic_cast<Conv2d&>(*layer).policy().forward, "im2col_gemm");
  EXPECT_EQ(dynamic_cast<Conv2d&>(*layer).policy().backward_data, "im2col_gemm");
}

TEST(Conv2dLayer, ASteadyStepAsksTheSystemForNothing) {
  LayerContext context;
  const auto layer =
      build(options({{"out_channels", std::int64_t{6}}, {"kernel_size", Integers{5}}}),
            {1, 1, 28, 28}, context);
  const Variable x(testing::normal({4, 1, 28, 28}, DType::f32, 4));
  const Tensor dy = testing::normal({4, 6, 24, 24}, DType::f32, 5);
  const auto step = [&] {
    layer->zero_grad();
    layer->forward(x).backward(dy.clone());
  };
  for (int i = 0; i < 3; ++i) step();
  const std::int64_t before = memory_stats({}).system_allocations;
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(memory_stats({}).system_allocations, before);
}

}  // namespace
}  // namespace convscope
