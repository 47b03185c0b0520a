// SPDX-License-Identifier: Apache-2.0
// structured.h: filter and channel pruning: removes whole outputs of a layer, and the columns of
// the next layer that read them. Cutting output k of layer l drops row k of the matrix of layer l,
// and column group k of the matrix of layer l+1. (If a flatten layer is between them, the group has
// the H W columns of channel k.) So the masked network computes exactly the same as a smaller
// network without this row and these columns.
//
//   filter   strength of output k: ||row k of layer l||_2, the layer that computes the output
//   channel  strength of output k: ||column group k of layer l+1||_2, the layer that reads it
//
// In a global ranking each strength is divided by the root mean square of its layer's strengths.
// The inputs of the first layer and the outputs of the last one (the classes) are never cut. An
// excluded layer keeps all of its outputs (method filter) or all of its inputs (method channel).
// Why tied     masks chosen layer by layer may keep filters that no layer reads, and channels that
//              no layer computes. Then no gradient passes, and only the last biases train
// Source       H. Li et al.: Pruning Filters for Efficient ConvNets, 2017, arXiv 1608.08710;
//              P. Molchanov et al.: Pruning CNNs for Resource Efficient Inference, 2017,
//              arXiv 1611.06440 (strengths normalised by layer)
#pragma once

#include <vector>

#include "sparsity/prunable_network.h"
#include "sparsity/sparsity_options.h"

namespace convscope {

// Returns kept[l][k] for every layer l of the network: whether output k stays. excluded[l] says
// whether the options exclude layer l. Throws an error if a layer would lose all its outputs.
CONVSCOPE_API std::vector<std::vector<std::uint8_t>> kept_outputs(const PrunableNetwork& network,
                                                                  const std::vector<bool>& excluded,
                                                                  const SparsityOptions& options,
                                                                  double sparsity);
// Returns the masks of all layers for these cuts.
CONVSCOPE_API std::vector<Tensor> tied_masks(const PrunableNetwork& network,
                                             const std::vector<std::vector<std::uint8_t>>& kept);
// Refuses networks whose layers do not form a sequence, and grouped convolutions.
CONVSCOPE_API void check_structured(const PrunableNetwork& network);

}  // namespace convscope
