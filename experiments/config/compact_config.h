// SPDX-License-Identifier: Apache-2.0
// compact_config.h: the config of the smaller dense network that structured masks leave.
#pragma once

#include "experiments/config/experiment_config.h"
#include "sparsity/compact.h"

namespace convscope {

// `config` with plan.kept[l].size() outputs of layer l, called `name`, and without the block
// `sparsity`. An error of kind kConfig when the widths of the model are no options of it.
CONVSCOPE_API ExperimentConfig compact_config(const ExperimentConfig& config,
                                              const std::string& name,
                                              const PrunableNetwork& network,
                                              const CompactPlan& plan);

}  // namespace convscope
