// SPDX-License-Identifier: Apache-2.0
// sweep_check.h: what a config alone cannot tell: whether the network of each member can be built.
#pragma once

#include "experiments/config/sweep_block.h"

namespace convscope {

// Builds network, optimiser and masks of each row, so that a kernel larger than its image is found
// before the first member trains. Data sets that must be read to know their shape are left out.
// Throws one Error of kind kConfig with a line for each mistake.
CONVSCOPE_API void check_members(const SweepPlan& plan);

// Loads the data of these members until one set is there; throws what the first one said when none
// is, because then no member can be trained.
CONVSCOPE_API void check_data(const SweepPlan& plan, const std::vector<std::size_t>& members);

// The members one a line: name, seed, state, what differs.
CONVSCOPE_API std::string list_members(const SweepPlan& plan, const std::string& folder);

}  // namespace convscope
