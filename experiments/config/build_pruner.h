// SPDX-License-Identifier: Apache-2.0
// build_pruner.h: builds masks on a network from the block `sparsity:` of a config.
#pragma once

#include <memory>

#include "experiments/config/experiment_config.h"
#include "optim/optimizer.h"
#include "sparsity/pruner.h"

namespace convscope {

// Returns the pruner, or null when the config prunes nothing. Adds the masks to `model`.
// `optimizer` may be null without training; `sample_shape` is [C,H,W]; `total_steps` counts the
// steps of the whole run.
CONVSCOPE_API std::unique_ptr<Pruner> build_pruner(const ExperimentConfig& config, Module& model,
                                                   Optimizer* optimizer, const Shape& sample_shape,
                                                   std::int64_t total_steps);

// Tells the pruner which optimiser tensors belong to its weights; does nothing for null.
CONVSCOPE_API void bind_pruner(Pruner* pruner, Optimizer& optimizer);

}  // namespace convscope
