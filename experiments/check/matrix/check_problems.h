// SPDX-License-Identifier: Apache-2.0
// check_problems.h: the problems that algorithms are checked on, besides those of
// experiments/shapes: small, sparse, shrunk and random ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope::matrix {

// Returns 3x3, 1x1 and depthwise convolutions of N images: every algorithm takes one of them.
CONVSCOPE_API std::vector<Conv2dProblem> small_problems(std::int64_t n);
// Returns formats of block-sparse weights that fit a problem: blocks that are or are not whole
// vectors, from no block to all blocks.
CONVSCOPE_API std::vector<Conv2dProblem> sparse_problems(const Conv2dProblem& dense,
                                                         std::size_t turn, std::size_t most);
// Returns the same kind of problem, small enough for the double reference: fewer images, then
// smaller images, then fewer channels.
CONVSCOPE_API Conv2dProblem shrunk(Conv2dProblem problem, double most_flops = 2e6);
// Returns sums of hundreds to tens of thousands of terms, in each direction.
CONVSCOPE_API std::vector<Conv2dProblem> long_sum_problems();
// Returns sums of some hundreds to thousands of terms, each of a few million operations, for
// numbers whose rounding errors have one sign.
CONVSCOPE_API std::vector<Conv2dProblem> one_way_problems();
// Returns problem `index` of a seed: every option, sizes around vector widths, always valid.
CONVSCOPE_API Conv2dProblem random_problem(std::uint64_t seed, std::uint64_t index);

}  // namespace convscope::matrix
