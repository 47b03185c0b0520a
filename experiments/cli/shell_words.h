// SPDX-License-Identifier: Apache-2.0
// shell_words.h: recognises KEY=VALUE that the shell has split because quotes are missing.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns an error sentence with the right spelling, or "" when no word looks like a split value.
// The shell splits an unquoted quant={w_bits: 4, a_bits: 4} into four words, and expands
// sparsity={method:magnitude,target:0.9} to sparsity=method:magnitude and sparsity=target:0.9.
CONVSCOPE_API std::string missing_quotes(const std::vector<std::string>& words);

}  // namespace convscope
