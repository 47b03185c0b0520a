// SPDX-License-Identifier: Apache-2.0
// layout_cut.h: assigns one of two states to each node so that the total cost is minimal. The total
// consists of the cost of each node in its state, and the cost of each pair of linked nodes in
// different states.
//
// The problem is a minimum cut, where the source is the state false and the sink is true.
// plan_layouts.cpp uses it to choose which operations work on NCHW16c images.
// Source     L. Ford, D. Fulkerson: Maximal Flow through a Network, 1956; shortest paths first: J.
//            Edmonds, R. Karp 1972, doi 10.1145/321694.321699
#pragma once

#include <limits>
#include <vector>

#include "framework/export.h"

namespace convscope {

inline constexpr double kImpossible = std::numeric_limits<double>::infinity();

struct CutNode {
  double when_false = 0, when_true = 0;  // costs of at least 0; kImpossible forbids a state
};
struct CutEdge {
  int from = 0, to = 0;
  double false_true = 0;  // when `from` is false and `to` is true, at least 0
  double true_false = 0;
};

// Returns the states, by node. A node whose states cost the same becomes false.
CONVSCOPE_API std::vector<bool> cheapest_states(const std::vector<CutNode>& nodes,
                                                const std::vector<CutEdge>& edges);

}  // namespace convscope
