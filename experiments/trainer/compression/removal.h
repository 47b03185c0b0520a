// SPDX-License-Identifier: Apache-2.0
// removal.h: `sparsity: {remove: true}`: once the masks of a structured method are final, the
// filters that they leave out are removed from the network, and the rest of the run trains the
// smaller dense network: each step is really faster, and takes less memory.
//
// Idea   train, prune, reconfigure, go on: Lym et al. 2019, "PruneTrain", arXiv:1901.09290
// When   at the first epoch that begins with final masks. Weights, buffers and the optimiser's
//        state are cut, so the run goes on where it was; only the order of sums differs from then
//        on.
#pragma once

#include <string>

#include "experiments/trainer/trainer.h"

namespace convscope {

// Replaces network and optimiser of the setup by the smaller ones; says what stayed.
CONVSCOPE_API std::string remove_pruned(TrainingSetup& setup);

// For a run that goes on from a checkpoint made after the removal: `config_yaml` is that of the
// checkpoint. Network and optimiser get its sizes; their values are those of a new run. False, and
// nothing changes, when the checkpoint was made before.
CONVSCOPE_API bool rebuild_removed(TrainingSetup& setup, const std::string& config_yaml);

}  // namespace convscope
