// SPDX-License-Identifier: Apache-2.0
// sweep_refresh.h: the state file and the table of a sweep that no command waits for.
#pragma once

#include <string>
#include <vector>

#include "experiments/sweep/sweep_members.h"
#include "experiments/sweep/sweep_table.h"

namespace convscope {

// What its folder alone tells about each member: beside members.plan.members.
CONVSCOPE_API std::vector<SweepOutcome> outcomes_in(const std::string& folder,
                                                    const SweepMembers& members);

// After a member has ended: writes sweep.state.json and the table, unless a command waits for the
// sweep and does so itself. A disk without room is no reason to fail.
CONVSCOPE_API void refresh_sweep(const std::string& folder);

// Whether somebody trains members of it, or Slurm will: for those who look on. Asks Slurm at most
// every ten seconds.
CONVSCOPE_API bool sweep_is_going(const std::string& folder);

}  // namespace convscope
