// SPDX-License-Identifier: Apache-2.0
// algorithm_answers.h: what else an algorithm has to do right, besides sums. Each function returns
// "" or what is wrong, as the end of a sentence.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"

namespace convscope::matrix {

// Checks that a NaN in x reaches each y whose kernel covers it, and no other. Checks nothing when
// the algorithm refuses the problem.
CONVSCOPE_API std::string fault_of_nan(const Conv2dAlgorithm& algorithm);

// Checks a fused epilogue: residual and relu have the same bits as a separate pass.
CONVSCOPE_API std::string fault_of_epilogue(const Conv2dAlgorithm& algorithm);

}  // namespace convscope::matrix
