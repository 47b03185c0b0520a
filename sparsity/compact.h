// SPDX-License-Identifier: Apache-2.0
// compact.h: a smaller dense network that computes what a masked one does. An output that no later
// layer reads is removed: its row of the weight and of the bias, its channel of a batch norm, and
// the columns of the next layer that read it. What is masked inside the rest is stored as 0.
//
// Textbook    from the last layer back: output k of layer l stays when a row of layer l+1 that
//             stays holds a weight in column group k
// Exact       an output that goes has no influence, whatever its value; so the two networks differ
//             by the order of sums only
#pragma once

#include <string>
#include <vector>

#include "sparsity/prunable_network.h"

namespace convscope {

struct CompactPlan {
  // kept[l]: the outputs of layer l that stay, ascending; of every layer of the network.
  std::vector<std::vector<std::int64_t>> kept;
};

// masks[l] undefined: a dense layer. Errors as check_structured().
CONVSCOPE_API CompactPlan compact_plan(const PrunableNetwork& network,
                                       const std::vector<Tensor>& masks);
// Copies parameters and buffers of the masked model into `compact`, which has the same layers under
// the same names with plan.kept[l].size() outputs each.
CONVSCOPE_API void copy_compact(Module& model, const PrunableNetwork& network,
                                const std::vector<Tensor>& masks, const CompactPlan& plan,
                                Module& compact);
// The same for the state of the optimiser: tensors whose names end in a parameter's name
// ("momentum.c1.weight") are cut as that parameter.
CONVSCOPE_API void copy_compact_state(Module& model, const PrunableNetwork& network,
                                      const std::vector<Tensor>& masks, const CompactPlan& plan,
                                      const std::vector<NamedTensor>& from_state,
                                      const std::vector<NamedTensor>& to_state);

}  // namespace convscope
