// SPDX-License-Identifier: Apache-2.0
// sweep_members.h: the members of a sweep as a file in its folder, sweep.members.json. Workers on
// other nodes, `sweep --status` and `sweep --cancel` read it instead of the config.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"

namespace convscope {

struct SweepMembers {
  SweepPlan plan;                    // members and rows; without `yaml` and `slurm`
  std::string call;                  // identifies the call of `convscope sweep` that wrote it
  std::vector<std::size_t> queue;    // the members that this call trains
  std::vector<std::string> retried;  // runs that failed before this call and are trained again
};

// Writes the file. The configs of all queued members must exist already (SweepFolder::prepare).
CONVSCOPE_API void write_sweep_members(const std::string& folder, const SweepMembers& members);

// Reads the file; throws an Error of kind kIo when it is missing or damaged. The config of a member
// that was never begun may be missing; the member then has an empty config with its name, seed and
// epochs.
CONVSCOPE_API SweepMembers read_sweep_members(const std::string& folder);
CONVSCOPE_API bool holds_sweep_members(const std::string& folder);

// Returns whether both plans have the same members (row and seed) in the same order, so that a
// member has the same index in both.
CONVSCOPE_API bool same_members(const SweepPlan& a, const SweepPlan& b);

// Returns the folder of a member's claim (claim.h): <folder>/<row>/.s<seed>.claim
CONVSCOPE_API std::string claim_folder(const std::string& folder, const SweepMember& member);

}  // namespace convscope
