// SPDX-License-Identifier: Apache-2.0
// algorithm_lists_test.cpp: tests lists of algorithms in a config, written as text or as a YAML
// list, for all directions, one direction or one layer. Also tests the errors for wrong lists.
#include <gtest/gtest.h>

#include "experiments/config/build.h"
#include "experiments/config/sweep_block.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

const std::string kLeNet = "data: {set: mnist, root: /nowhere}\nmodel: {type: lenet5}\n";

ExperimentConfig load(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config_text(kLeNet + yaml, "lists.yaml", {}, overrides);
}

TEST(AlgorithmLists, AreTextOrAYamlList) {
  for (const char* yaml :
       {"conv: {algorithm: 'winograd_f4x3,auto'}\n", "conv: {algorithm: ' winograd_f4x3 , auto'}\n",
        "conv:\n  algorithm: winograd_f4x3,auto\n", "conv: {algorithm: [winograd_f4x3, auto]}\n"}) {
    EXPECT_EQ(load(yaml).conv.policy.forward, "winograd_f4x3,auto") << yaml;
    EXPECT_EQ(load(yaml).conv.policy.backward_weight, "winograd_f4x3,auto") << yaml;
  }
  for (const char* word : {"conv.algorithm=fft,direct", "conv.algorithm=[fft, direct]"}) {
    EXPECT_EQ(load("", {word}).conv.policy.backward_data, "fft,direct") << word;
  }
}

TEST(AlgorithmLists, StandInDirectionsAndLayersToo) {
  const std::string yaml =
      "conv: {backward_data: [fft, direct], per_layer: {c1: [fft, auto], c2: {forward: "
      "'gemm_1x1,measure'}}}\n";
  const ExperimentConfig config = load(yaml);
  EXPECT_EQ(config.conv.policy.forward, "auto");
  EXPECT_EQ(config.conv.policy.backward_data, "fft,direct");
  EXPECT_EQ(config.conv.of("c1").backward_weight, "fft,auto");
  EXPECT_EQ(config.conv.of("c2").forward, "gemm_1x1,measure");
  EXPECT_EQ(config.conv.of("c2").backward_data, "fft,direct");
  // One direction of a list that applies to all of them.
  const ExperimentConfig changed = load(yaml, {"conv.per_layer.c1.forward=direct"});
  EXPECT_EQ(changed.conv.of("c1").forward, "direct");
  EXPECT_EQ(changed.conv.of("c1").backward_weight, "fft,auto");
  // A resolved config loads to the same values.
  const std::string written = to_yaml(config);
  EXPECT_EQ(to_yaml(parse_config_text(written, "again.yaml")), written);
  EXPECT_EQ(parse_config_text(written, "again.yaml").conv.of("c1").forward, "fft,auto");
}

TEST(AlgorithmLists, EachWordIsChecked) {
  const auto mistake = [](const std::string& yaml, const std::string& part) {
    EXPECT_ERROR(ErrorKind::kConfig, part, load(yaml));
  };
  mistake("conv: {algorithm: 'fft,winograd_f4x'}\n",
          "got 'winograd_f4x'; did you mean 'winograd_f4x3'?");
  mistake("conv: {algorithm: 'fft,winograd_f4x'}\n", "lists.yaml:3:19: error: conv.algorithm: ");
  mistake("conv: {per_layer: {c1: [fft, dirct]}}\n",
          "conv.per_layer.c1: expected auto, measure, check:<a>,<b> or an algorithm");
  mistake("conv: {forward: 'auto,fft'}\n", "conv.forward: expected 'auto' at the end of the list");
  mistake("conv: {forward: 'fft,'}\n", "expected a word at each place of the list");
  mistake("conv: {forward: [fft, null]}\n", "conv.forward: expected text, got nothing");
  mistake("conv: {forward: []}\n", "conv.forward: expected text, got an empty list");
  mistake("conv: {forward: [[fft]]}\n", "conv.forward: expected text, got a list");
}

// YAML ends a value inside braces at the comma.
TEST(AlgorithmLists, ABareListInBracesIsExplained) {
  const ExperimentConfig config = load("conv: {per_layer: {c1: fft,auto}}\n");
  EXPECT_ERROR(ErrorKind::kConfig,
               "got the algorithm 'auto'; write a list of algorithms with brackets, [a, b]",
               build_model(config, {1, 28, 28}, 10));
}

TEST(AlgorithmLists, ALayerSaysItsOwnInOnePlace) {
  const std::string yaml =
      "data: {set: mnist, root: /nowhere}\n"
      "layers:\n"
      "  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 3, algorithm: 'fft,direct'}\n"
      "  - {type: flatten}\n"
      "  - {type: linear, out_features: 10}\n";
  const auto build = [&](const std::string& more) {
    return build_model(parse_config_text(yaml + more, "lists.yaml"), {1, 28, 28}, 10);
  };
  EXPECT_NE(build(""), nullptr);
  EXPECT_ERROR(ErrorKind::kConfig, "expected the algorithm of layer 'c1' in one place",
               build("conv: {per_layer: {c1: direct}}\n"));
}

TEST(AlgorithmLists, AreValuesOfASweep) {
  const SweepPlan sweep = parse_sweep_text(
      kLeNet + "sweep: {grid: {conv.algorithm: ['winograd_f4x3,auto', direct]}}\n", "lists.yaml");
  ASSERT_EQ(sweep.members.size(), 2u);
  EXPECT_EQ(sweep.members[0].config.conv.policy.forward, "winograd_f4x3,auto");
}

}  // namespace
}  // namespace convscope
