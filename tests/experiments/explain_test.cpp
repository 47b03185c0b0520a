// SPDX-License-Identifier: Apache-2.0
// explain_test.cpp: tests that the convolution problems of a network follow from its shapes, and
// tests the output of `explain`.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "experiments/config/build.h"
#include "experiments/config/conv_layers.h"
#include "layers/conv2d/algorithm.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

const std::string kTwoConvolutions =
    "data: {set: mnist, root: /nowhere}\n"
    "layers:\n"
    "  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 5, stride: 2, padding: 1}\n"
    "  - {type: relu}\n"
    "  - {type: conv2d, name: c2, out_channels: 6, kernel_size: 3}\n"
    "  - {type: flatten}\n"
    "  - {type: linear, out_features: 10}\n";

TEST(ConvLayers, FollowTheShapesThroughTheNetwork) {
  const ExperimentConfig config = parse_config_text(kTwoConvolutions, "two.yaml");
  const SampleInfo sample = sample_info(config);
  const std::shared_ptr<Module> network = build_model(config, sample.shape, sample.classes);
  const std::vector<ConvLayer> layers = conv_layers(*network, {8, 1, 28, 28});
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].name, "c1");
  EXPECT_EQ(layers[0].use->problem(),
            "n=8,c=1,h=28,w=28,k=4,r=5,s=5,stride=2,pad=1,dilation=1,groups=1");
  EXPECT_EQ(layers[1].name, "c2");  // (28 + 2 - 5) / 2 + 1 = 13
  EXPECT_EQ(layers[1].use->problem(),
            "n=8,c=4,h=13,w=13,k=6,r=3,s=3,stride=1,pad=0,dilation=1,groups=1");
}

// This module contains a convolution, but does not report the shape of the convolution's input.
class Hiding final : public Module {
 public:
  explicit Hiding(const std::shared_ptr<Module>& inside) { add_child("inside", inside); }
  std::string kind() const override { return "hiding"; }
  Variable forward(const Variable& x) override { return x; }
  Shape output_shape(const Shape& input) const override { return input; }
};

TEST(ConvLayers, AreRefusedWhereTheWayIsNotKnown) {
  const ExperimentConfig config = parse_config_text(kTwoConvolutions, "two.yaml");
  Hiding network(build_model(config, {1, 28, 28}, 10));
  EXPECT_ERROR(ErrorKind::kUnavailable, "got 'inside.c1' inside a hiding",
               conv_layers(network, {8, 1, 28, 28}));
}

TEST(Explain, NamesEveryAlgorithmAndMarksOne) {
  const std::string command = CONVSCOPE_BINARY_DIR
      "/bin/convscope explain " CONVSCOPE_SOURCE_DIR
      "/experiments/configs/quickstart.yaml conv.per_layer.c2.forward=reference --json";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t got = 0; (got = fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), got);
  }
  EXPECT_EQ(pclose(pipe), 0);
  const nlohmann::json all = nlohmann::json::parse(text);
  const nlohmann::json& layers = all.at("convolutions");
  ASSERT_EQ(layers.size(), 2U);
  for (const auto& layer : layers) {
    EXPECT_EQ(layer.at("problem").get<std::string>().substr(0, 5), "n=64,");
    for (const auto& [name, direction] : layer.at("directions").items()) {
      std::size_t chosen = 0;
      for (const auto& algorithm : direction.at("algorithms")) {
        if (algorithm.at("chosen").get<bool>()) ++chosen;
        const bool says_why = !algorithm.at("reason").get<std::string>().empty();
        EXPECT_TRUE(algorithm.at("accepts").get<bool>() || says_why) << algorithm;
      }
      EXPECT_EQ(chosen, 1U) << name;
      EXPECT_EQ(direction.at("algorithms").size(),
                conv2d_algorithms(DeviceType::cpu).names().size());
    }
  }
  const auto& forward = layers[1].at("directions").at("forward");
  EXPECT_EQ(forward.at("policy"), "reference");
  for (const auto& algorithm : forward.at("algorithms")) {
    EXPECT_EQ(algorithm.at("chosen").get<bool>(), algorithm.at("algorithm") == "reference");
  }
  const nlohmann::json& steps = all.at("steps");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].at("mode"), "training");
  EXPECT_EQ(steps[1].at("mode"), "inference");
  for (const auto& step : steps) {
    EXPECT_TRUE(step.at("planned").get<bool>());
    EXPECT_GT(step.at("arena_bytes").get<std::int64_t>(), 0);
    bool named = false;  // the algorithm that the config names runs
    for (const auto& operation : step.at("operations")) {
      named = named ||
              (operation.at("layer") == "c2" && operation.at("text") == "conv2d reference + relu");
    }
    EXPECT_TRUE(named) << step;
  }
}

}  // namespace
}  // namespace convscope
