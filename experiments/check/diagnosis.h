// SPDX-License-Identifier: Apache-2.0
// diagnosis.h: from a fault that the matrix found to a sentence about its likely cause.
//
// Memory first: is the output never written, or added to where it should be assigned; is the
// workspace read before it is written; is something read beside an input? Each is asked by another
// run with other numbers in that place. Then rounding, threads and instruction sets. Then small
// problems, each with one thing of its own (a dilation, two groups, a stride along the width, ...),
// are computed by the card and by the textbook's loops with each of the known mistakes
// (wrong_loops.h): a mistake that explains every result, right or wrong, is named. Without one, the
// places of the wrong elements are described.
#pragma once

#include <string>

#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

CONVSCOPE_API std::string diagnosis_of(const Conv2dAlgorithm& card, const matrix::Fault& fault);

// "[n,k,p,q] = [0,2,0,4]" of element `at` of what the direction writes.
CONVSCOPE_API std::string place_text(const Conv2dProblem& problem, Direction direction,
                                     std::size_t at);
// "y", "dx", "dw"
CONVSCOPE_API const char* output_name(Direction direction);

}  // namespace convscope
