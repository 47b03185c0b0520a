// SPDX-License-Identifier: Apache-2.0
// latex_table.h: a table for a paper: tabular with the rules of booktabs.
#pragma once

#include <string>

#include "experiments/report/text_table.h"

namespace convscope {

// Numbers to the right, words to the left, units in the head, "$\pm$" before a deviation, "--"
// where there is no value. The first line is a comment that names the package.
CONVSCOPE_API std::string to_latex(const TextTable& table);

// Text that LaTeX prints as it is.
CONVSCOPE_API std::string latex_escaped(const std::string& text);

}  // namespace convscope
