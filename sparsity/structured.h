// SPDX-License-Identifier: Apache-2.0
// structured.h: filter and channel pruning: whole outputs of a layer go, and with them what the
// next layer reads of them. One cut k of layer l drops row k of its matrix and group k of the
// columns of layer l+1 (the H W columns of that channel when a flatten layer stands between). So
// the masked network computes exactly what the smaller network does from which both are removed.
//
//   filter   strength of output k: ||row k of layer l||_2           (what makes it)
//   channel  strength of output k: ||column group k of layer l+1||_2 (what reads it)
//
// In a global ranking strengths are divided by their layer's root mean square.
// The inputs of the first layer and the outputs of the last one (the classes) are never cut; an
// excluded layer loses none of its outputs (filter) or inputs (channel).
// Why tied     masks chosen layer by layer may keep filters that nobody reads and read filters that
//              nobody makes; then no gradient passes, and only the last biases are trained
// Source       H. Li et al.: Pruning Filters for Efficient ConvNets, 2017, arXiv 1608.08710;
//              P. Molchanov et al.: Pruning CNNs for Resource Efficient Inference, 2017,
//              arXiv 1611.06440 (strengths normalised by layer)
#pragma once

#include <vector>

#include "sparsity/prunable_network.h"
#include "sparsity/sparsity_options.h"

namespace convscope {

// kept[l][k]: whether output k of layer l stays; for every layer of the network. `excluded[l]` as
// the options say. An error when a layer would lose all its outputs.
CONVSCOPE_API std::vector<std::vector<std::uint8_t>> kept_outputs(const PrunableNetwork& network,
                                                                  const std::vector<bool>& excluded,
                                                                  const SparsityOptions& options,
                                                                  double sparsity);
// The masks of all layers that these cuts make.
CONVSCOPE_API std::vector<Tensor> tied_masks(const PrunableNetwork& network,
                                             const std::vector<std::vector<std::uint8_t>>& kept);
// Refuses networks whose layers do not stand in one line, and grouped convolutions.
CONVSCOPE_API void check_structured(const PrunableNetwork& network);

}  // namespace convscope
