// SPDX-License-Identifier: Apache-2.0
// squeeze_excitation_test.cpp: values, gradients, and the compiled step of squeeze-and-excitation.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

std::shared_ptr<Module> network(const Shape& input) {
  LayerContext context;
  context.seed = 11;
  Options reduction, linear;
  reduction.set("reduction", std::int64_t{2});
  linear.set("out_features", std::int64_t{4});
  return build_layers({{.type = "squeeze_excitation", .name = "se", .options = reduction},
                       {.type = "flatten", .name = "flat", .options = {}},
                       {.type = "linear", .name = "f", .options = linear}},
                      input, context);
}

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

TEST(SqueezeExcitation, IsCompiledLikeEagerExecution) {
  const Shape input{3, 6, 5, 4};
  const auto compiled = network(input), eager = network(input);
  std::string why;
  const auto plan = StepPlan::make(*compiled, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_EQ(plan->text().find("dynamic graph"), std::string::npos) << plan->text();
  const Tensor x = testing::normal(input, DType::f32, 2), labels = Tensor::zeros({3}, DType::i32);
  const Variable loss = softmax_cross_entropy(eager->forward(Variable(x)), labels);
  loss.backward();
  EXPECT_NEAR(plan->forward(x, labels), loss.value().item(), 1e-6);
  plan->backward();
  const auto a = compiled->parameters(), b = eager->parameters();
  ASSERT_EQ(a.size(), 6u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor &da = a[i].variable.grad(), &db = b[i].variable.grad();
    double largest = 0;
    for (std::int64_t j = 0; j < db.numel(); ++j) largest = std::fmax(largest, std::abs(db.at(j)));
    EXPECT_GT(largest, 0) << a[i].name;
    for (std::int64_t j = 0; j < db.numel(); ++j) {
      ASSERT_NEAR(da.at(j), db.at(j), 64 * 6e-8 * largest) << a[i].name;
    }
  }
}

}  // namespace
}  // namespace convscope
