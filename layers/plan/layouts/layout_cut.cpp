// SPDX-License-Identifier: Apache-2.0
// layout_cut.cpp: finds the cheapest states of nodes by a minimum cut.
#include "layers/plan/layouts/layout_cut.h"

#include <algorithm>
#include <cmath>

namespace convscope {
namespace {

// Arcs are stored in pairs: arc i and its reverse i ^ 1.
class Network {
 public:
  explicit Network(int nodes) : arcs_of_(static_cast<std::size_t>(nodes)) {}

  void add(int from, int to, double forward, double backward) {
    arcs_of_[index(from)].push_back(static_cast<int>(arcs_.size()));
    arcs_.push_back({to, forward});
    arcs_of_[index(to)].push_back(static_cast<int>(arcs_.size()));
    arcs_.push_back({from, backward});
  }

  // Pushes the maximum flow from `source` to `sink`, along shortest paths.
  void fill(int source, int sink) {
    while (true) {
      const std::vector<int> by = reached(source, sink);
      if (by[index(sink)] == kNowhere) return;
      double room = kImpossible;
      for (int at = sink; at != source; at = arcs_[index(by[index(at)] ^ 1)].to) {
        room = std::min(room, arcs_[index(by[index(at)])].room);
      }
      for (int at = sink; at != source; at = arcs_[index(by[index(at)] ^ 1)].to) {
        arcs_[index(by[index(at)])].room -= room;
        arcs_[index(by[index(at)] ^ 1)].room += room;
      }
    }
  }

  // Returns, for each node, the arc by which a search along arcs with capacity left reaches the
  // node, or kNowhere. The search stops at `sink`.
  std::vector<int> reached(int source, int sink) const {
    std::vector<int> by(arcs_of_.size(), kNowhere);
    std::vector<int> queue{source};
    by[index(source)] = kHere;
    for (std::size_t next = 0; next < queue.size() && by[index(sink)] == kNowhere; ++next) {
      for (const int arc : arcs_of_[index(queue[next])]) {
        const auto& [to, room] = arcs_[index(arc)];
        if (room <= 0 || by[index(to)] != kNowhere) continue;
        by[index(to)] = arc;
        queue.push_back(to);
      }
    }
    return by;
  }

  static constexpr int kNowhere = -1, kHere = -2;

 private:
  struct Arc {
    int to;
    double room;
  };
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  std::vector<std::vector<int>> arcs_of_;
  std::vector<Arc> arcs_;
};

}  // namespace

std::vector<bool> cheapest_states(const std::vector<CutNode>& nodes,
                                  const std::vector<CutEdge>& edges) {
  // A forbidden state costs more than all other costs together. An infinite capacity would not
  // work, because capacities are subtracted.
  double sum = 1;
  const auto count = [&](double cost) { sum += std::isinf(cost) ? 0 : cost; };
  for (const CutNode& node : nodes) {
    count(node.when_false);
    count(node.when_true);
  }
  for (const CutEdge& edge : edges) {
    count(edge.false_true);
    count(edge.true_false);
  }
  const auto finite = [&](double cost) { return std::isinf(cost) ? sum : cost; };
  // Nodes on the source's side are false: a cut severs the arcs from false to true nodes.
  const int source = static_cast<int>(nodes.size());
  const int sink = source + 1;
  Network network(sink + 1);
  for (int i = 0; i < source; ++i) {
    const CutNode& node = nodes[static_cast<std::size_t>(i)];
    network.add(source, i, finite(node.when_true), 0);
    network.add(i, sink, finite(node.when_false), 0);
  }
  for (const CutEdge& edge : edges) {
    network.add(edge.from, edge.to, finite(edge.false_true), finite(edge.true_false));
  }
  network.fill(source, sink);
  // Returns the largest set of false nodes: all nodes that cannot reach the sink. The search starts
  // at the sink and follows arcs with capacity left towards it.
  std::vector<bool> out(nodes.size(), false);
  for (int i = 0; i < source; ++i) {
    out[static_cast<std::size_t>(i)] =
        network.reached(i, sink)[static_cast<std::size_t>(sink)] != Network::kNowhere;
  }
  return out;
}

}  // namespace convscope
