// SPDX-License-Identifier: Apache-2.0
// sweep_check.h: checks that need more than the config: whether the network of each member can be
// built and trained.
#pragma once

#include "experiments/config/sweep_block.h"

namespace convscope {

// Why the members of one row cannot be trained.
struct RefusedRow {
  std::string row;
  std::string place;  // "table.yaml:12"
  std::string reason;
  bool is_unavailable = false;  // an algorithm or a device; otherwise a mistake in the config
};

// Returns the rows that cannot be trained. Builds network, optimiser and masks of each row and asks
// its algorithms whether they accept their problems. So a kernel larger than its image, or a layer
// that its algorithm refuses, is found before the first member trains. Rows whose data set must be
// read to know the shape of its samples are not checked.
CONVSCOPE_API std::vector<RefusedRow> refused_rows(const SweepPlan& plan);

// Throws one Error with a line per refused row, if there is any. The kind is kConfig, or
// kUnavailable when only algorithms or devices are missing.
CONVSCOPE_API void refuse(const std::vector<RefusedRow>& refused);

// Calls refuse(refused_rows(plan)).
CONVSCOPE_API void check_members(const SweepPlan& plan);

// Tries to load the data sets of these members, one after the other, until one can be loaded. If
// none can be loaded, no member can be trained, and the first error is thrown. Also throws one
// Error of kind kConfig with a line for each row that needs more images than the loaded set has.
CONVSCOPE_API void check_data(const SweepPlan& plan, const std::vector<std::size_t>& members);

// Returns the members, one per line: name, seed, state ("to do" before training, "refused"), and
// the differences.
CONVSCOPE_API std::string list_members(const SweepPlan& plan, const std::string& folder,
                                       const std::vector<RefusedRow>& refused);

}  // namespace convscope
