// SPDX-License-Identifier: Apache-2.0
// softmax_test.cpp: softmax, channel shuffle, and the pools over windows of several sizes.
#include "layers/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
#include "layers/channel_shuffle/channel_shuffle.h"
#include "layers/pool2d/adaptive_max_pool2d.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/compiled_step.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::build_layer;
using testing::normal;
using testing::options;

using Function = std::function<Variable(const Variable&)>;

void expect_gradients(const Shape& shape, const Function& f) {
  const GradcheckResult result = gradcheck([&](const std::vector<Variable>& v) { return f(v[0]); },
                                           {Variable(normal(shape, DType::f64, 1), true)});
  EXPECT_TRUE(result.ok) << shape.str() << ": " << result.str();
}

// Expects the bits of eager execution in a compiled step with NCHW images, and near numbers in
// NCHW16c. Returns the operations of the second step.
std::string expect_compiled(const LayerSpec& layer) {
  const Options conv = options({{"out_channels", std::int64_t{20}},
                                {"kernel_size", std::vector<std::int64_t>{3}},
                                {"padding", std::vector<std::int64_t>{1}}});
  std::string text;
  for (const bool blocked : {false, true}) {
    text = testing::expect_compiled_like_eager(
        {{.type = "conv2d", .name = "c1", .options = conv},
         layer,
         {.type = "conv2d", .name = "c2", .options = conv}},
        {6, 24, 9, 9},
        {testing::kDirect, testing::kDirect, testing::kDirect, blocked ? "nchw16c" : "nchw"},
        blocked ? 64 * 6e-8 : 0);
    EXPECT_EQ(text.find("dynamic graph"), std::string::npos) << text;
  }
  return text;
}

TEST(Softmax, HasTheValuesOfItsFormula) {
  for (const int axis : {1, 2, 3}) {
    const Tensor x = normal({2, 5, 3, 4}, DType::f32, 1);
    const Tensor y = softmax(Variable(x), axis).value();
    const std::int64_t inner = x.shape().stride(axis), size = x.dim(axis);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const std::int64_t first = i - i / inner % size * inner;
      double sum = 0;
      for (std::int64_t k = 0; k < size; ++k) sum += std::exp(x.at(first + k * inner));
      ASSERT_NEAR(y.at(i), std::exp(x.at(i)) / sum, 1e-6);
    }
    expect_gradients({2, 3, 2, 4}, [axis](const Variable& v) { return softmax(v, axis); });
  }
  const Tensor large = Tensor::from({1000.0f, 1000.0f}, {1, 2});
  EXPECT_EQ(softmax(Variable(large), 1).value().at(0), 0.5);
  EXPECT_NE(expect_compiled({.type = "softmax", .name = "s", .options = {}}).find("s  softmax"),
            std::string::npos);
  EXPECT_ERROR(
      ErrorKind::kInvalid, "expected an axis of x with at least one element, got axis 2",
      build_layer("softmax", options({{"axis", std::int64_t{2}}}), {1, 4})->output_shape({1, 4}));
}

TEST(ChannelShuffle, TakesChannelsOfAllGroupsInTurn) {
  const Tensor x = normal({2, 6, 3, 4}, DType::f32, 1);
  const Tensor y = channel_shuffle(Variable(x), 2).value();
  constexpr std::int64_t kFrom[] = {0, 3, 1, 4, 2, 5};
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t c = i / 12 % 6;
    ASSERT_EQ(y.at(i), x.at(i + (kFrom[c] - c) * 12)) << i;
  }
  const Tensor back = channel_shuffle(Variable(y), 3).value();
  EXPECT_TRUE(testing::same_bits(back, x));
  expect_gradients({2, 6, 1, 2}, [](const Variable& v) { return channel_shuffle(v, 3); });
}

TEST(ChannelShuffle, IsCompiledInBothLayouts) {
  const std::string text = expect_compiled(
      {.type = "channel_shuffle", .name = "s", .options = options({{"groups", std::int64_t{5}}})});
  EXPECT_NE(text.find("s  channel_shuffle"), std::string::npos) << text;
  EXPECT_ERROR(ErrorKind::kInvalid, "expected groups to divide the channels of x, got 4 groups",
               build_layer("channel_shuffle", options({{"groups", std::int64_t{4}}}), {1, 6, 2, 2})
                   ->output_shape({1, 6, 2, 2}));
}

TEST(AdaptiveMaxPool, HasTheValuesOfItsFormula) {
  const Tensor x = normal({2, 3, 7, 10}, DType::f32, 1);
  for (const auto& [p, q] : {std::pair<std::int64_t, std::int64_t>(3, 4), {7, 5}, {1, 1}, {9, 3}}) {
    const Tensor y = adaptive_max_pool2d(Variable(x), p, q).value();
    ASSERT_EQ(y.shape(), (Shape{2, 3, p, q}));
    for (std::int64_t at = 0; at < y.numel(); ++at) {
      const double row = static_cast<double>(at / q % p), column = static_cast<double>(at % q);
      const double h = 7.0 / static_cast<double>(p), w = 10.0 / static_cast<double>(q);
      double best = -INFINITY;
      for (std::int64_t i = 0; i < 70; ++i) {
        const auto r = static_cast<double>(i / 10), s = static_cast<double>(i % 10);
        const bool inside = r >= std::floor(row * h + 1e-9) && r < (row + 1) * h - 1e-9 &&
                            s >= std::floor(column * w + 1e-9) && s < (column + 1) * w - 1e-9;
        if (inside) best = std::fmax(best, x.at(at / (p * q) * 70 + i));
      }
      ASSERT_EQ(y.at(at), best) << p << "x" << q << " at " << at;
    }
  }
  expect_gradients({1, 2, 5, 7}, [](const Variable& v) { return adaptive_max_pool2d(v, 3, 4); });
  expect_gradients({1, 2, 4, 6}, [](const Variable& v) { return adaptive_max_pool2d(v, 2, 3); });
}

TEST(AdaptiveMaxPool, IsCompiledWithTheSameBits) {
  const std::string text =
      expect_compiled({.type = "adaptive_max_pool2d",
                       .name = "p",
                       .options = options({{"output_size", std::vector<std::int64_t>{4, 5}}})});
  EXPECT_NE(text.find("p  adaptive_max_pool2d"), std::string::npos) << text;
  EXPECT_ERROR(ErrorKind::kInvalid, "[adaptive_max_pool2d] expected x [N,C,H,W] with at least one",
               adaptive_max_pool2d(Variable(normal({2, 3}, DType::f32, 1)), 1, 1));
}

TEST(GlobalPool, IsTheMeanOrTheLargestOfAChannel) {
  const Tensor x = normal({2, 3, 4, 5}, DType::f32, 1);
  for (const bool max : {false, true}) {
    const char* const type = max ? "global_max_pool2d" : "global_avg_pool2d";
    const auto layer = build_layer(type, {}, x.shape());
    EXPECT_EQ(layer->kind(), type);
    const Tensor y = layer->forward(Variable(x)).value();
    ASSERT_EQ(y.shape(), (Shape{2, 3, 1, 1}));
    for (std::int64_t c = 0; c < 6; ++c) {
      double best = -INFINITY, sum = 0;
      for (std::int64_t i = 20 * c; i < 20 * c + 20; ++i) {
        best = std::fmax(best, x.at(i));
        sum += x.at(i);
      }
      ASSERT_NEAR(y.at(c), max ? best : sum / 20, 1e-6);
    }
    testing::expect_compiled_like_eager({{.type = type, .name = "p", .options = {}}},
                                        {6, 24, 9, 9});
  }
}

}  // namespace
}  // namespace convscope
