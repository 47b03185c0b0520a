// SPDX-License-Identifier: Apache-2.0
// latex_table.h: a table for a paper: tabular with the rules of booktabs.
#pragma once

#include <string>

#include "experiments/report/text_table.h"

namespace convscope {

// Returns the table: numbers right-aligned, words left-aligned, units in the head, "$\pm$" before a
// deviation, "--" for no value. The first line is a comment that names the package.
CONVSCOPE_API std::string to_latex(const TextTable& table);

// Returns text that LaTeX prints unchanged.
CONVSCOPE_API std::string latex_escaped(const std::string& text);

}  // namespace convscope
