// SPDX-License-Identifier: Apache-2.0
// build_pruner.h: from the block `sparsity:` of a config to masks on a network.
#pragma once

#include <memory>

#include "experiments/config/experiment_config.h"
#include "optim/optimizer.h"
#include "sparsity/pruner.h"

namespace convscope {

// Null when the config prunes nothing. Adds the masks to `model`; `optimizer` may be null when
// nothing will be trained. `sample_shape` is [C,H,W]; `total_steps` of the whole run.
CONVSCOPE_API std::unique_ptr<Pruner> build_pruner(const ExperimentConfig& config, Module& model,
                                                   Optimizer* optimizer, const Shape& sample_shape,
                                                   std::int64_t total_steps);

// Tells the pruner which tensors are the state of its weights; null: does nothing.
CONVSCOPE_API void bind_pruner(Pruner* pruner, Optimizer& optimizer);

}  // namespace convscope
