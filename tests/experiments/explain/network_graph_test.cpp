// SPDX-License-Identifier: Apache-2.0
// network_graph_test.cpp: tests which results `convscope explain --graph` and `--svg` show that a
// layer reads.
#include "experiments/explain/network_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/call_program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope::testing {
namespace {

const std::string kConfigs = CONVSCOPE_SOURCE_DIR "/experiments/configs/";

std::vector<GraphNode> nodes_of(const std::string& config) {
  return graph_nodes(explain_config(load_config(kConfigs + config + ".yaml")));
}

std::string inputs_of(const std::vector<GraphNode>& nodes, const std::string& name) {
  const auto at = std::ranges::find(nodes, name, &GraphNode::name);
  if (at == nodes.end()) return "no such layer";
  std::vector<std::string> names;
  for (const std::size_t input : at->inputs) names.push_back(nodes[input].name);
  return cat(at->kind, " ", at->shape, " of ", join(names));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(NetworkGraph, KnowsWhatEachLayerReads) {
  const std::vector<GraphNode> branches = nodes_of("synthetic_inception_small");
  EXPECT_EQ(branches[0].shape, "[64,1,28,28]");
  EXPECT_EQ(inputs_of(branches, "narrow.conv"), "conv2d [64,8,14,14] of pooled");
  EXPECT_EQ(inputs_of(branches, "joined"),
            "concat [64,20,14,14] of narrow.relu_1, wide.relu_1, project.relu_1");
  const auto conv = std::ranges::find(branches, "wide.conv", &GraphNode::name);
  EXPECT_NEAR(conv->mflop, 2e-6 * 64 * 8 * 4 * 9 * 14 * 14, 1e-9);
  EXPECT_FALSE(conv->algorithm.empty());
  const std::vector<GraphNode> residual = nodes_of("synthetic_resnet18_small");
  EXPECT_EQ(inputs_of(residual, "layer2.0"),
            "add, relu [64,16,14,14] of layer2.0.bn2, layer2.0.downsample.1");
  EXPECT_EQ(inputs_of(residual, "layer2.1.conv1"), "conv2d [64,16,14,14] of layer2.0");
}

TEST(NetworkGraph, IsATableAndADrawing) {
  const TemporaryFolder folder;
  for (const char* name : {"synthetic_inception_small", "synthetic_residual_blocks"}) {
    const Called answer =
        call_program(cat("explain --graph --svg net.svg ", kConfigs, name, ".yaml"), folder.path());
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.out.find("MFLOP  algorithm"), std::string::npos) << answer.out;
    std::istringstream lines(answer.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    const std::vector<GraphNode> nodes = nodes_of(name);
    const std::string svg = text_of(folder / "net.svg");
    EXPECT_EQ(count_of(svg, "rx=\"4\""), nodes.size());
    std::size_t arrows = 0;
    for (const GraphNode& node : nodes) arrows += node.inputs.size();
    EXPECT_EQ(count_of(svg, "marker-end"), arrows);
    EXPECT_EQ(count_of(svg, "<g>"), count_of(svg, "</g>"));
  }
}

}  // namespace
}  // namespace convscope::testing
