// SPDX-License-Identifier: Apache-2.0
// compact.h: a smaller dense network that computes the same as a masked network. If no later layer
// reads an output, compacting removes its row of the weight and of the bias, its channel of a batch
// norm, and the columns of the next layer that read the output. Other masked weights are stored as
// 0.
//
// Textbook    from the last layer back: output k of layer l stays when a kept row of layer l+1 has
//             a kept weight in column group k
// Exact       a removed output has no influence, whatever its value; so the two networks differ
//             by the order of sums only
#pragma once

#include <string>
#include <vector>

#include "sparsity/prunable_network.h"

namespace convscope {

struct CompactPlan {
  // kept[l]: the indices of the remaining outputs of layer l, ascending, for every layer.
  std::vector<std::vector<std::int64_t>> kept;
};

// Returns the outputs to keep. An undefined masks[l] means a dense layer. Throws the same errors as
// check_structured().
CONVSCOPE_API CompactPlan compact_plan(const PrunableNetwork& network,
                                       const std::vector<Tensor>& masks);
// Copies parameters and buffers of the masked model into `compact`. Its layers have the same names,
// and layer l has plan.kept[l].size() outputs.
CONVSCOPE_API void copy_compact(Module& model, const PrunableNetwork& network,
                                const std::vector<Tensor>& masks, const CompactPlan& plan,
                                Module& compact);
// Copies the optimiser's state. A tensor whose name ends in a parameter's name
// ("momentum.c1.weight") loses the same rows and columns as the parameter.
CONVSCOPE_API void copy_compact_state(Module& model, const PrunableNetwork& network,
                                      const std::vector<Tensor>& masks, const CompactPlan& plan,
                                      const std::vector<NamedTensor>& from_state,
                                      const std::vector<NamedTensor>& to_state);

}  // namespace convscope
