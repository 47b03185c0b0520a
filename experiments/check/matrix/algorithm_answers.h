// SPDX-License-Identifier: Apache-2.0
// algorithm_answers.h: checks how an algorithm handles NaN and fused epilogues. Each function
// returns "", or what is wrong, worded as the end of a sentence.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"

namespace convscope::matrix {

// Checks that a NaN in x reaches each element of y whose kernel covers it, and no other element.
// Checks nothing when the algorithm refuses the problem.
CONVSCOPE_API std::string fault_of_nan(const Conv2dAlgorithm& algorithm);

// Checks that a fused residual and ReLU give the same bits as a separate pass over y.
CONVSCOPE_API std::string fault_of_epilogue(const Conv2dAlgorithm& algorithm);

}  // namespace convscope::matrix
