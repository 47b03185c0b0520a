// SPDX-License-Identifier: Apache-2.0
// no_memory.h: builds the network of a config without memory, for commands that run nothing.
#pragma once

#include <memory>

#include "experiments/config/experiment_config.h"
#include "framework/memory/unbacked.h"

namespace convscope {

// Returns an allocator that reserves no memory: weights are not drawn, which takes seconds for a
// large network. For a config with pruning masks, returns null (real memory), because masks depend
// on the values of the weights.
inline std::unique_ptr<UnbackedMemory> no_memory(const ExperimentConfig& config) {
  return config.sparsity.values().empty() ? std::make_unique<UnbackedMemory>() : nullptr;
}

}  // namespace convscope
