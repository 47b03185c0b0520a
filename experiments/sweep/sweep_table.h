// SPDX-License-Identifier: Apache-2.0
// sweep_table.h: the table that a sweep ends with: a row for each row of the plan, with mean and
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
  std::string error;  // why this member has no result, in this call or an earlier one
  int jobs = 1;       // members that were trained side by side, at most, while this one was
};

// Every column, one number in a cell: for CSV and JSON. What the rows set (data.batch_size, ...)
// stands in the last columns. `outcomes` stand beside plan.members.
CONVSCOPE_API TextTable sweep_table(const SweepPlan& plan,
                                    const std::vector<SweepOutcome>& outcomes);
// For people: every measurement as mean ± standard deviation, a column for each key that all rows
// set and in which they differ, empty columns left out.
CONVSCOPE_API TextTable sweep_reading_table(const SweepPlan& plan,
                                            const std::vector<SweepOutcome>& outcomes);
// The same with notes below.
CONVSCOPE_API std::string sweep_markdown(const SweepPlan& plan,
                                         const std::vector<SweepOutcome>& outcomes);

}  // namespace convscope
