// SPDX-License-Identifier: Apache-2.0
// comparison_text.h: a comparison for people (Markdown, LaTeX) and for programs (CSV, JSON).
#pragma once

#include <string>

#include "experiments/compare/comparison.h"

namespace convscope {

// Returns the sides, the facts that differ, the results, and the meaning of the outcomes.
CONVSCOPE_API std::string comparison_markdown(const CompareResult& comparison);
// Returns only the results, one per line: a metric or a benchmark row of a side.
CONVSCOPE_API std::string comparison_csv(const CompareResult& comparison);
// Returns the result tables. Comments name the sides.
CONVSCOPE_API std::string comparison_latex(const CompareResult& comparison);
// Returns JSON as described by experiments/schema/compare.schema.json.
CONVSCOPE_API std::string comparison_json(const CompareResult& comparison);

}  // namespace convscope
