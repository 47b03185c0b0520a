// SPDX-License-Identifier: Apache-2.0
// removal.h: `sparsity: {remove: true}`: once the masks of a structured method are final, pruned
// filters are removed from the network, and the rest of the run trains the smaller dense network,
// which is faster and needs less memory.
//
// Idea   train, prune, reconfigure, continue: Lym et al. 2019, "PruneTrain", arXiv:1901.09290
// When   at the first epoch that begins with final masks. Weights, buffers and the optimiser's
//        state are cut, so the run continues; only the summation order differs from then on.
#pragma once

#include <string>

#include "experiments/trainer/trainer.h"

namespace convscope {

// Replaces network and optimiser of the setup by the smaller ones. Returns a text about the network
// that remains.
CONVSCOPE_API std::string remove_pruned(TrainingSetup& setup);

// Prepares a run that resumes from a checkpoint after the removal; `config_yaml` is the
// checkpoint's. Gives network and optimiser the sizes of the checkpoint, with initial values. For a
// checkpoint before the removal, changes nothing and returns false.
CONVSCOPE_API bool rebuild_removed(TrainingSetup& setup, const std::string& config_yaml);

}  // namespace convscope
