// SPDX-License-Identifier: Apache-2.0
// connectivity.h: finds the outputs of a masked network that are on a path from the image to the
// classes. If there is no such path, only the biases after the cut are trained, and the loss stays
// at ln(classes). So masks that disconnect a network are refused.
//
// Textbook    reached from the front: output k of layer l reads a reached output of layer l-1
//             reaches the end: output k of layer l is read by an output of l+1 that reaches the end
//             alive = both
#pragma once

#include <string>
#include <vector>

#include "sparsity/prunable_network.h"

namespace convscope {

struct Connectivity {
  std::vector<std::vector<std::uint8_t>> alive;  // [layer][output]
  std::vector<std::int64_t> alive_count;         // [layer]
  std::string cut_at;  // "" or the name of the first layer that nothing passes through
};

// Returns which outputs are on a path. masks[l] is the mask of layer l, undefined for a dense
// layer. If the layers do not form a sequence, an output counts as alive if its row keeps a weight.
CONVSCOPE_API Connectivity connectivity(const PrunableNetwork& network,
                                        const std::vector<Tensor>& masks);

}  // namespace convscope
