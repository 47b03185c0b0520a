// SPDX-License-Identifier: Apache-2.0
// blocks.h: replaces the entries of `layers:` that use a block by the layers of the block:
//
//   blocks:
//     branch:
//       parameters: {width: 8}
//       layers:
//         - {type: conv2d, name: c, out_channels: $width * 2, kernel_size: 1}
//         - {type: relu}
//   layers:
//     - {block: branch, name: b, width: 16, repeat: 2}   # b.0.c, b.0.relu_1, b.1.c, b.1.relu_1
//
// Values may be computed from the parameters (arithmetic.h). Inside of a block, `from` names layers
// of the block. `input` are its inputs, `input.1` the second one. Outside, `from: b` is the last
// layer of the block, `from: b.0` that of its first repetition.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/document.h"

namespace convscope::config {

struct ListedLayer {
  Node node;         // `from`, if present, is a list of whole names
  std::string path;  // "layers.2" or "blocks.branch.layers.0", for errors
};

// Returns the layers in order. `blocks` is the value of the key `blocks`, or null.
std::vector<ListedLayer> listed_layers(const Node& layers, const Node* blocks, Mistakes& mistakes);

}  // namespace convscope::config
