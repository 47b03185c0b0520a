// SPDX-License-Identifier: Apache-2.0
// comparison_tables.h: the tables of a comparison.
#pragma once

#include <string>

#include "experiments/compare/comparison.h"

namespace convscope {

// Returns the facts that differ, one column per side.
CONVSCOPE_API TextTable facts_table(const std::vector<FactRow>& rows,
                                    const std::vector<ComparedSide>& sides);

// Returns a table for people: the results of one side compared with the first. Keys that are equal
// in all rows have no column; shared_keys() returns them.
CONVSCOPE_API TextTable result_table(const CompareResult& comparison, std::size_t side);
CONVSCOPE_API std::string shared_keys(const CompareResult& comparison);

// Returns a table for programs: the results of all sides, every number in its own column.
CONVSCOPE_API TextTable all_results(const CompareResult& comparison);

}  // namespace convscope
