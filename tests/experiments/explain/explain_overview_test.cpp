// SPDX-License-Identifier: Apache-2.0
// explain_overview_test.cpp: tests the output of `convscope explain` for valid configs: a short
// table by default, the whole table for a named layer, and the marks of the chosen algorithms.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "experiments/explain/details.h"
#include "experiments/explain/overview.h"
#include "experiments/explain/text_layout.h"
#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;

const std::string kConfigs = CONVSCOPE_SOURCE_DIR "/experiments/configs/";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ExplainOverview, IsALineForEachConvolution) {
  const std::map<std::string, std::size_t> most = {{"quickstart", 40},
                                                   {"synthetic_resnet18_small", 60},
                                                   {"synthetic_mobilenet_small", 60},
                                                   {"synthetic_mobilenet_v2_small", 100}};
  for (const auto& [name, lines] : most) {
    const Called answer = call_program("explain " + kConfigs + name + ".yaml");
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_LE(lines_of(answer.out).size(), lines) << answer.out;
    EXPECT_NE(answer.out.find("backward_weight"), std::string::npos);
    EXPECT_NE(answer.out.find("\ntraining: planned"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("\ninference: planned"), std::string::npos) << answer.out;
    EXPECT_EQ(answer.out.find("operations, with MFLOP and MB"), std::string::npos);
    for (const std::string& line : lines_of(answer.out)) EXPECT_LE(line.size(), 112u) << line;
  }
  const std::string out = call_program("explain " + kConfigs + "quickstart.yaml").out;
  EXPECT_EQ(count_of(out, "\nc1 "), 1u) << out;
  EXPECT_EQ(count_of(out, "\nc2 "), 1u) << out;
}

TEST(ExplainOverview, SaysProblemsShortly) {
  EXPECT_EQ(short_problem("n=64,c=1,h=28,w=28,k=4,r=5,s=5,stride=2,pad=1,dilation=1,groups=1"),
            "1x28x28 -> 4 5x5 s2 p1");
  EXPECT_EQ(short_problem("n=8,c=32,h=9,w=8,k=32,r=3,s=1,stride=1,pad=0,dilation=2,groups=32"),
            "32x9x8 -> 32 3x1 d2 g32");
  EXPECT_EQ(short_problem("n=8,c=4,length=9"), "n=8,c=4,length=9");
}

TEST(ExplainOverview, ParagraphsAreBrokenAtBlanks) {
  std::string text = "a";
  for (int i = 0; i < 60; ++i) text += " word";
  for (const std::string& line : lines_of(wrapped_text(text, 4))) EXPECT_LE(line.size(), 100u);
  EXPECT_EQ(lines_of(wrapped_text(text, 4))[1].substr(0, 8), "    word");
  EXPECT_EQ(wrapped_text("  a b", 4), "  a b\n");
  EXPECT_EQ(columns_text({{"a", "1"}, {"bcd", "23"}}, 2, {1}), "  a     1\n  bcd  23\n");
}

TEST(ExplainLayer, PrintsEveryAlgorithmOfTheLayersThatAreNamed) {
  const Called answer =
      call_program("explain --layer c2 " + kConfigs + "quickstart.yaml conv.algorithm=direct");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out.find("c1"), std::string::npos) << answer.out;
  EXPECT_EQ(count_of(answer.out, "* direct  "), 3u) << answer.out;
  EXPECT_EQ(count_of(answer.out, "winograd_f4x3 "), 3u) << answer.out;
  EXPECT_NE(answer.out.find("refuses: "), std::string::npos);
  const Called both = call_program("explain --layer c2 --layer c1 " + kConfigs + "quickstart.yaml");
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_NE(both.out.find("\nc1  n=64"), std::string::npos) << both.out;
  EXPECT_NE(both.out.find("\nc2  n=64"), std::string::npos) << both.out;
  EXPECT_NE(both.out.find("runs lanes_chain: c1+c2, planned\n    The chain computes these layers"),
            std::string::npos)
      << both.out;
}

TEST(ExplainLayer, AnUnknownNameIsAMistakeWithTheNearestOne) {
  const Called answer =
      call_program("explain " + kConfigs + "quickstart.yaml --layer c1 --layer cc2");
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.err.find("got 'cc2'; did you mean 'c2'?; known: c1, c2"), std::string::npos)
      << answer.err;
}

TEST(ExplainSteps, AreListedOnDemand) {
  const std::string config = kConfigs + "quickstart.yaml";
  EXPECT_EQ(
      count_of(call_program("explain --steps " + config).out, "operations, with MFLOP and MB"), 2u);
  const std::string all = call_program("explain " + config + " --all").out;
  EXPECT_EQ(count_of(all, "operations, with MFLOP and MB"), 2u) << all;
  EXPECT_NE(all.find("\nc1  n=64"), std::string::npos);
  EXPECT_NE(all.find("\nc2  n=64"), std::string::npos);
}

// For each direction, `explain` stars exactly the algorithms that the training step runs.
TEST(ExplainMarks, NothingIsStarredThatDoesNotRun) {
  const std::map<std::string, std::string> configs = {
      {"quickstart", ""},
      {"quickstart", " conv.algorithm=direct_batch_lanes"},
      {"synthetic_layers_list", ""},
      {"synthetic_resnet18_small", " train.plan=false"},
      {"cifar10_lenet5_lsq_w4a4", ""},
      {"mnist_lenet5_magnitude90", " conv.algorithm=check:direct,im2col_gemm"}};
  for (const auto& [name, overrides] : configs) {
    SCOPED_TRACE(name + overrides);
    const ExperimentConfig config = load_config(
        kConfigs + name + ".yaml",
        overrides.empty() ? std::vector<std::string>() : std::vector{overrides.substr(1)});
    const Explanation explanation = explain_config(config);
    for (const ExplainedLayer& layer : explanation.layers) {
      std::vector<std::set<std::string>> starred;
      for (const std::string& line : lines_of(layer_text(layer))) {
        if (line.starts_with("  ") && line[2] != ' ') starred.emplace_back();
        if (!line.starts_with("    * ")) continue;
        ASSERT_FALSE(starred.empty());
        starred.back().insert(line.substr(6, line.find(' ', 6) - 6));
      }
      ASSERT_EQ(starred.size(), 3u) << layer_text(layer);
      for (const Direction direction : kDirections) {
        std::set<std::string> runs;
        const LayerKernel* const kernel =
            explanation.steps[0].kernels.find(layer.conv.name, direction);
        if (kernel != nullptr && kernel->kernel.find(':') == std::string::npos) {
          const std::size_t checked = kernel->kernel.find(" checked by ");
          runs.insert(kernel->kernel.substr(0, checked));
          if (checked != std::string::npos) runs.insert(kernel->kernel.substr(checked + 12));
        }
        EXPECT_EQ(starred[static_cast<std::size_t>(direction)], runs)
            << layer.conv.name << " " << name_of(direction);
      }
    }
  }
}

}  // namespace
}  // namespace convscope
