// SPDX-License-Identifier: Apache-2.0
// layout_cut_test.cpp: tests the search for the cheapest layouts of the nodes of a graph, compared
// with trying all combinations.
#include "layers/plan/layouts/layout_cut.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/random.h"

namespace convscope {
namespace {

double cost_of(const std::vector<CutNode>& nodes, const std::vector<CutEdge>& edges,
               const std::vector<bool>& states) {
  double sum = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    sum += states[i] ? nodes[i].when_true : nodes[i].when_false;
  }
  for (const CutEdge& edge : edges) {
    const bool from = states[static_cast<std::size_t>(edge.from)];
    const bool to = states[static_cast<std::size_t>(edge.to)];
    if (!from && to) sum += edge.false_true;
    if (from && !to) sum += edge.true_false;
  }
  return sum;
}

TEST(CheapestStates, AreThoseOfAllThatCanBeTried) {
  Generator random(17);
  for (int round = 0; round < 300; ++round) {
    const int count = 1 + static_cast<int>(random.below(8));
    std::vector<CutNode> nodes;
    std::vector<CutEdge> edges;
    const auto cost = [&] { return static_cast<double>(random.below(20)); };
    for (int i = 0; i < count; ++i) {
      nodes.push_back({cost(), cost()});
      const std::uint32_t kind = random.below(6);  // at most one is forbidden
      if (kind == 0) nodes.back().when_true = kImpossible;
      if (kind == 1) nodes.back().when_false = kImpossible;
    }
    for (std::uint32_t i = random.below(14); i > 0; --i) {
      const auto node = [&] {
        return static_cast<int>(random.below(static_cast<std::uint32_t>(count)));
      };
      const int from = node();
      const int to = node();
      if (from != to) edges.push_back({from, to, cost(), cost()});
    }
    double least = kImpossible;
    for (int code = 0; code < 1 << count; ++code) {
      std::vector<bool> states;
      for (int i = 0; i < count; ++i) states.push_back((code >> i & 1) != 0);
      least = std::min(least, cost_of(nodes, edges, states));
    }
    EXPECT_EQ(cost_of(nodes, edges, cheapest_states(nodes, edges)), least) << "round " << round;
  }
}

TEST(CheapestStates, AreFalseWhereBothCostTheSame) {
  const std::vector<bool> all_false(3, false);
  EXPECT_EQ(cheapest_states({{0, 0}, {2, 2}, {1, 1}}, {{0, 1, 5, 5}, {1, 2, 0, 0}}), all_false);
  // The edge costs as much as one node gains.
  EXPECT_EQ(cheapest_states({{0, kImpossible}, {7, 4}}, {{0, 1, 3, 3}}),
            (std::vector<bool>{false, false}));
  EXPECT_EQ(cheapest_states({{0, kImpossible}, {7, 4}}, {{0, 1, 2.5, 9}}),
            (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace convscope
