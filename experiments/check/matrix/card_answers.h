// SPDX-License-Identifier: Apache-2.0
// card_answers.h: what else a card has to do right, beside sums: each function gives "" or what is
// wrong, as the end of a sentence.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"

namespace convscope::matrix {

// A NaN in x reaches each y whose kernel covers it, and no other. Nothing where the card does not
// take the problem.
CONVSCOPE_API std::string fault_of_nan(const Conv2dAlgorithm& card);

// Of a card that fuses the epilogue: residual and relu have the bits of a pass of their own.
CONVSCOPE_API std::string fault_of_epilogue(const Conv2dAlgorithm& card);

}  // namespace convscope::matrix
