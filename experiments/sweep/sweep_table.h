// SPDX-License-Identifier: Apache-2.0
// sweep_table.h: the final table of a sweep: one row per row of the plan, with mean and standard
// deviation over its seeds.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "experiments/report/text_table.h"
#include "experiments/sweep/member_state.h"

namespace convscope {

struct SweepOutcome {
  MemberState state;
  std::string error;  // why this member has no result, in this or an earlier call
  int jobs = 1;       // largest number of members trained at the same time
};

// Returns every column with one number per cell, for CSV and JSON. Keys that the rows set
// (data.batch_size, ...) are the last columns. `outcomes` is indexed like plan.members.
CONVSCOPE_API TextTable sweep_table(const SweepPlan& plan,
                                    const std::vector<SweepOutcome>& outcomes);
// Returns the table for people: every measurement as mean ± standard deviation, a column for each
// key that all rows set differently, without empty columns.
CONVSCOPE_API TextTable sweep_reading_table(const SweepPlan& plan,
                                            const std::vector<SweepOutcome>& outcomes);
// Returns the table for people with notes below.
CONVSCOPE_API std::string sweep_markdown(const SweepPlan& plan,
                                         const std::vector<SweepOutcome>& outcomes);

}  // namespace convscope
