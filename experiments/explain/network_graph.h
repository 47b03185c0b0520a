// SPDX-License-Identifier: Apache-2.0
// network_graph.h: the layers of a network and the results that each of them reads, as text and as
// a drawing, for `convscope explain --graph` and `--svg`.
#pragma once

#include <string>
#include <vector>

#include "experiments/explain/explanation.h"

namespace convscope {

struct GraphNode {
  std::string name, kind;
  std::vector<std::size_t> inputs;  // indices of earlier nodes
  std::string shape;                // of the results: "[64,8,14,14]"
  double mflop = 0;                 // of the forward pass of a batch
  std::string algorithm;            // of the forward pass in the training step; "": no choice
};

// Returns the image and all layers, in the order in which they run.
CONVSCOPE_API std::vector<GraphNode> graph_nodes(const Explanation& explanation);

CONVSCOPE_API std::string graph_text(const std::vector<GraphNode>& nodes);
// Draws the nodes from the top to the bottom, as an SVG document.
CONVSCOPE_API std::string graph_svg(const std::string& title, const std::vector<GraphNode>& nodes);

}  // namespace convscope
