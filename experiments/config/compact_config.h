// SPDX-License-Identifier: Apache-2.0
// compact_config.h: the config of the smaller dense network after structured pruning.
#pragma once

#include "experiments/config/experiment_config.h"
#include "sparsity/compact.h"

namespace convscope {

// Returns `config` for the smaller network: layer l has plan.kept[l].size() outputs, the name is
// `name`, and the block `sparsity` is removed. Fails with kConfig when the model has no options for
// widths.
CONVSCOPE_API ExperimentConfig compact_config(const ExperimentConfig& config,
                                              const std::string& name,
                                              const PrunableNetwork& network,
                                              const CompactPlan& plan);

}  // namespace convscope
