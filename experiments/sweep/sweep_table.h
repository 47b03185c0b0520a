// SPDX-License-Identifier: Apache-2.0
// sweep_table.h: the final table of a sweep: a row for each variant of the config, with mean and
// standard deviation over its seeds.
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

// Returns the table for programs (CSV and JSON): all columns, one number per cell. The last columns
// are the keys that the rows set (data.batch_size, ...). `outcomes` is indexed like plan.members.
CONVSCOPE_API TextTable sweep_table(const SweepPlan& plan,
                                    const std::vector<SweepOutcome>& outcomes);
// Returns the table for people. Measurements are shown as mean ± standard deviation. A key has a
// column if all rows set it and their values differ. Empty columns are left out.
CONVSCOPE_API TextTable sweep_reading_table(const SweepPlan& plan,
                                            const std::vector<SweepOutcome>& outcomes);
// Returns the table for people with notes below.
CONVSCOPE_API std::string sweep_markdown(const SweepPlan& plan,
                                         const std::vector<SweepOutcome>& outcomes);

}  // namespace convscope
