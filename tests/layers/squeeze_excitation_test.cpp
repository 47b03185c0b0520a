// SPDX-License-Identifier: Apache-2.0
// squeeze_excitation_test.cpp: values, gradients, and the compiled step of squeeze-and-excitation.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/compiled_step.h"

namespace convscope {
namespace {

const Tensor& parameter(const Module& model, const std::string& name) {
  for (const NamedParameter& p : model.parameters()) {
    if (p.name == name) return p.variable.value();
  }
  throw std::runtime_error(name);
}

TEST(SqueezeExcitation, MultipliesEachChannelByItsWeight) {
  const Shape input{2, 6, 3, 4};
  LayerContext context;
  Options reduction;
  reduction.set("reduction", std::int64_t{2});
  const auto model = build_layers(
      {{.type = "squeeze_excitation", .name = "se", .options = reduction}}, input, context);
  const Tensor x = testing::normal(input, DType::f32, 1);
  const Tensor y = model->forward(Variable(x)).value();
  const Tensor& w1 = parameter(*model, "se.fc1.weight");
  const Tensor& b1 = parameter(*model, "se.fc1.bias");
  const Tensor& w2 = parameter(*model, "se.fc2.weight");
  const Tensor& b2 = parameter(*model, "se.fc2.bias");
  constexpr std::int64_t kChannels = 6, kSqueezed = 3, kPixels = 12;
  for (std::int64_t n = 0; n < 2; ++n) {
    double mean[kChannels] = {}, inner[kSqueezed] = {};
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (std::int64_t i = 0; i < kPixels; ++i) {
        mean[c] += x.at((n * kChannels + c) * kPixels + i) / kPixels;
      }
    }
    for (std::int64_t k = 0; k < kSqueezed; ++k) {
      inner[k] = b1.at(k);
      for (std::int64_t c = 0; c < kChannels; ++c) inner[k] += w1.at(k * kChannels + c) * mean[c];
      inner[k] = std::fmax(inner[k], 0);
    }
    for (std::int64_t c = 0; c < kChannels; ++c) {
      double s = b2.at(c);
      for (std::int64_t k = 0; k < kSqueezed; ++k) s += w2.at(c * kSqueezed + k) * inner[k];
      s = 1 / (1 + std::exp(-s));
      for (std::int64_t i = 0; i < kPixels; ++i) {
        const std::int64_t at = (n * kChannels + c) * kPixels + i;
        ASSERT_NEAR(y.at(at), s * x.at(at), 64 * 6e-8 * (1 + std::abs(x.at(at))));
      }
    }
  }
}

// The gradients of x and of its means are added in another order.
TEST(SqueezeExcitation, IsCompiledLikeEagerExecution) {
  Options reduction;
  reduction.set("reduction", std::int64_t{2});
  const std::string text = testing::expect_compiled_like_eager(
      {{.type = "squeeze_excitation", .name = "se", .options = reduction}}, {3, 6, 5, 4}, {},
      64 * 6e-8);
  EXPECT_EQ(text.find("dynamic graph"), std::string::npos) << text;
}

}  // namespace
}  // namespace convscope
