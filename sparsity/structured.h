// SPDX-License-Identifier: Apache-2.0
// structured.h: filter and channel pruning: removes whole outputs of a layer, and the columns of
// the next layer that read them. Cutting output k of layer l drops row k of its matrix and group k
// of the columns of layer l+1 (the H W columns of that channel when a flatten layer is between). So
// the masked network computes exactly the same as the smaller network without this row and these
// columns.
//
//   filter   strength of output k: ||row k of layer l||_2           (its producer)
//   channel  strength of output k: ||column group k of layer l+1||_2 (its reader)
//
// In a global ranking strengths are divided by their layer's root mean square.
// The inputs of the first layer and the outputs of the last one (the classes) are never cut; an
// excluded layer loses none of its outputs (filter) or inputs (channel).
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

// Returns kept[l][k]: whether output k of layer l stays; for every layer of the network.
// `excluded[l]` as in the options. Throws when a layer would lose all its outputs.
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
