// SPDX-License-Identifier: Apache-2.0
// check_problems.h: the problems that algorithms are checked on, beside those of
// experiments/shapes: small ones, sparse ones, shrunk and random ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope::matrix {

// A 3x3, a 1x1 and a depthwise convolution of N images: every card takes one of them.
CONVSCOPE_API std::vector<Conv2dProblem> small_problems(std::int64_t n);
// Formats of block-sparse weights that fit a problem: blocks that are and are not of whole vectors,
// from nothing to everything.
CONVSCOPE_API std::vector<Conv2dProblem> sparse_problems(const Conv2dProblem& dense,
                                                         std::size_t turn, std::size_t most);
// The same kind of problem, small enough for the double reference: fewer images, then smaller
// images, then fewer channels.
CONVSCOPE_API Conv2dProblem shrunk(Conv2dProblem problem, double most_flops = 2e6);
// Sums of hundreds to tens of thousands of terms, in each direction.
CONVSCOPE_API std::vector<Conv2dProblem> long_sum_problems();
// Sums of some hundreds to thousands of terms, each of a few million operations, for numbers whose
// roundings have one direction.
CONVSCOPE_API std::vector<Conv2dProblem> one_way_problems();
// Problem number `index` of a seed: every option, sizes around the vector widths, always valid.
CONVSCOPE_API Conv2dProblem random_problem(std::uint64_t seed, std::uint64_t index);

}  // namespace convscope::matrix
