// SPDX-License-Identifier: Apache-2.0
// layout_cut.h: which of two states each of several nodes takes, so that the sum of all costs is
// the least: what a node costs in each state, and what it costs that two nodes differ.
//
// It is a minimum cut: the source stands for the state false, the sink for true. The plan asks it
// which operations work on blocked images (plan_layouts.cpp).
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

// The states, by node. A node that may take both at the same price takes false.
CONVSCOPE_API std::vector<bool> cheapest_states(const std::vector<CutNode>& nodes,
                                                const std::vector<CutEdge>& edges);

}  // namespace convscope
