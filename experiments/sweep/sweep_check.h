// SPDX-License-Identifier: Apache-2.0
// sweep_check.h: what a config alone cannot tell: whether the network of each member can be built
// and trained.
#pragma once

#include "experiments/config/sweep_block.h"

namespace convscope {

// Why the members of one row cannot be trained.
struct RefusedRow {
  std::string row;
  std::string place;  // "table.yaml:12"
  std::string reason;
  bool is_unavailable = false;  // an algorithm or a device; else a mistake of the config
};

// Builds network, optimiser and masks of each row and asks the algorithms that it names, so that a
// kernel larger than its image, or an algorithm that refuses a layer, is found before the first
// member trains. Data sets that must be read to know their shape are left out.
CONVSCOPE_API std::vector<RefusedRow> refused_rows(const SweepPlan& plan);

// Throws one Error with a line for each of them, when there is one: of kind kConfig, or
// kUnavailable when no config is at fault.
CONVSCOPE_API void refuse(const std::vector<RefusedRow>& refused);

// refuse(refused_rows(plan))
CONVSCOPE_API void check_members(const SweepPlan& plan);

// Loads the data of these members until one set is there; throws what the first one said when none
// is, because then no member can be trained. Throws one Error of kind kConfig with a line for each
// row that asks for more images than that set has.
CONVSCOPE_API void check_data(const SweepPlan& plan, const std::vector<std::size_t>& members);

// The members one a line: name, seed, state ("to do" when nothing is trained yet, "refused"), what
// differs.
CONVSCOPE_API std::string list_members(const SweepPlan& plan, const std::string& folder,
                                       const std::vector<RefusedRow>& refused);

}  // namespace convscope
