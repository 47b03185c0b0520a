// SPDX-License-Identifier: Apache-2.0
// schedule.h: the share of pruned weights after a number of training steps. The share is a pure
// function of this number, so a resumed run needs nothing else.
//
// Formula   T training steps; a = round(start T), e = round(end T); t = (step - a) / (e - a)
//           one_shot   0 before a, target from a on
//           cubic      target (1 - (1 - t)^3): fast while much is redundant, slow near the end
//           iterative  after round i of `rounds`: 1 - (1 - target)^(i / rounds): each round drops
//                      the same share of the remaining weights, with fine-tuning between rounds
//           Masks change at step a (one_shot), at the beginning of each round (iterative), or at
//           a, a + every_steps, ... and e (cubic, and the method rigl).
// Source    M. Zhu, S. Gupta: To prune, or not to prune, 2017, arXiv 1710.01878 (cubic);
//           S. Han et al.: Learning both Weights and Connections, 2015, arXiv 1506.02626
//           (iterative); U. Evci et al.: Rigging the Lottery, 2020, arXiv 1911.11134 (rigl)
#pragma once

#include <cstdint>

#include "sparsity/sparsity_options.h"

namespace convscope {

class CONVSCOPE_API SparsitySchedule {
 public:
  SparsitySchedule(const SparsityOptions& options, std::int64_t total_steps);

  // Returns the share of pruned weights after `steps` completed training steps. If an update is due
  // then, the share is that after the update.
  double sparsity(std::int64_t steps) const;
  // Returns whether the masks must be computed again after `steps` steps.
  bool update_due(std::int64_t steps) const;
  // Returns whether the masks are final.
  bool finished(std::int64_t steps) const { return steps >= last_update_; }
  // For method rigl: returns which share of the kept weights the update at `steps` replaces:
  // drop_fraction / 2 (1 + cos(pi steps / e)). Returns 0 for the first update, which only prunes.
  double replaced(std::int64_t steps) const;

  std::int64_t first_update() const { return start_; }
  std::int64_t last_update() const { return last_update_; }

 private:
  SparsityOptions options_;
  std::int64_t start_ = 0, end_ = 0, last_update_ = 0;
};

}  // namespace convscope
