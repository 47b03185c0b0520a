// SPDX-License-Identifier: Apache-2.0
// comparison_tables.h: the tables of a comparison.
#pragma once

#include <string>

#include "experiments/compare/comparison.h"

namespace convscope {

// The facts that differ, a column for each side.
CONVSCOPE_API TextTable facts_table(const std::vector<FactRow>& rows,
                                    const std::vector<ComparedSide>& sides);

// For people: the results of one side against the first. Of benchmarks, what names all rows alike
// is no column; shared_keys() says it.
CONVSCOPE_API TextTable result_table(const CompareResult& comparison, std::size_t side);
CONVSCOPE_API std::string shared_keys(const CompareResult& comparison);

// For programs: all sides, every number in a column of its own.
CONVSCOPE_API TextTable all_results(const CompareResult& comparison);

}  // namespace convscope
