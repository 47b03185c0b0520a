// SPDX-License-Identifier: Apache-2.0
// sweep_refresh.h: writes the state file and table of a sweep while no `convscope sweep` command
// waits for it.
#pragma once

#include <string>
#include <vector>

#include "experiments/sweep/sweep_members.h"
#include "experiments/sweep/sweep_table.h"

namespace convscope {

// Reads the outcome (state and error) of each member from its folder. The result is indexed like
// members.plan.members.
CONVSCOPE_API std::vector<SweepOutcome> outcomes_in(const std::string& folder,
                                                    const SweepMembers& members);

// Writes sweep.state.json and the table after a member has ended. Does nothing if a `convscope
// sweep` command waits for the members, because that command writes them. Errors such as a full
// disk are ignored.
CONVSCOPE_API void refresh_sweep(const std::string& folder);

// Returns whether a process trains members of the sweep, or Slurm will start such a process.
// `watch` uses it. Asks Slurm at most every ten seconds.
CONVSCOPE_API bool sweep_is_going(const std::string& folder);

}  // namespace convscope
