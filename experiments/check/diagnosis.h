// SPDX-License-Identifier: Apache-2.0
// diagnosis.h: turns a fault that the test matrix (convolution_case.h) found into a sentence about
// its likely cause.
//
// 1. Memory: does the algorithm leave the output unwritten, or add to it instead of assigning?
//    Does it read the workspace before writing it, or memory outside an input? Each question is
//    answered by a run with other numbers in that memory.
// 2. Rounding, threads and instruction sets: does the error disappear with one thread, or with
//    another instruction set? Is it only a rounding error?
// 3. Mistakes in the loops: small problems have one special property each (a dilation, two
//    groups, a stride along the width, ...). The algorithm computes them, and so do the textbook
//    loops with each of the known mistakes (wrong_loops.h). The mistake that explains all results
//    of the algorithm is named.
// 4. If no mistake is named, the positions of the wrong elements are described.
#pragma once

#include <string>

#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

CONVSCOPE_API std::string diagnosis_of(const Conv2dAlgorithm& algorithm,
                                       const matrix::Fault& fault);

// Returns "[n,k,p,q] = [0,2,0,4]" for element `at` of the direction's output.
CONVSCOPE_API std::string place_text(const Conv2dProblem& problem, Direction direction,
                                     std::size_t at);
// Returns "y", "dx", "dw".
CONVSCOPE_API const char* output_name(Direction direction);

}  // namespace convscope
