// SPDX-License-Identifier: Apache-2.0
// diagnosis.h: turns a fault that the matrix found into a sentence about its likely cause.
//
// Memory first: is the output never written, or added to instead of assigned; is the workspace read
// before it is written; is something outside an input read? Each question is answered by another
// run with other numbers in that place. Then rounding, threads and instruction sets. Then small
// problems with one special property each (a dilation, two groups, a stride along the width, ...)
// are computed by the algorithm and by the textbook loops with each of the known mistakes
// (wrong_loops.h). A mistake that explains every result, right or wrong, is named. Otherwise, the
// positions of the wrong elements are described.
#pragma once

#include <string>

#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

CONVSCOPE_API std::string diagnosis_of(const Conv2dAlgorithm& algorithm,
                                       const matrix::Fault& fault);

// Returns "[n,k,p,q] = [0,2,0,4]" for element `at` of what the direction writes.
CONVSCOPE_API std::string place_text(const Conv2dProblem& problem, Direction direction,
                                     std::size_t at);
// Returns "y", "dx", "dw".
CONVSCOPE_API const char* output_name(Direction direction);

}  // namespace convscope
