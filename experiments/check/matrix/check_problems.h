// SPDX-License-Identifier: Apache-2.0
// check_problems.h: the problems that algorithms are checked on, besides those of
// experiments/shapes: small, sparse, shrunk and random ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope::matrix {

// Returns 3x3, 1x1, depthwise and grouped convolutions of N images. Every algorithm accepts at
// least one, some algorithms only in another layout (forms_of()).
CONVSCOPE_API std::vector<Conv2dProblem> small_problems(std::int64_t n);
// Returns a dense problem with several formats of block-sparse weights. Some block sizes are
// multiples of a vector's width, others are not. The share of kept blocks varies from none to all.
CONVSCOPE_API std::vector<Conv2dProblem> sparse_problems(const Conv2dProblem& dense,
                                                         std::size_t turn, std::size_t most);
// Makes a problem small enough for the f64 reference: first fewer images, then smaller images, then
// fewer channels.
CONVSCOPE_API Conv2dProblem shrunk(Conv2dProblem problem, double most_flops = 2e6);
// Returns problems in which each result element is a sum of hundreds to tens of thousands of terms.
CONVSCOPE_API std::vector<Conv2dProblem> long_sum_problems();
// Returns problems for the inputs whose rounding errors have one sign (rounds_one_way()). Result
// elements are sums of hundreds to thousands of terms; a problem needs a few million operations.
CONVSCOPE_API std::vector<Conv2dProblem> one_way_problems();
// Returns a valid random problem, the one with number `index` for this seed. It may use every
// option. Its sizes are near the vector widths.
CONVSCOPE_API Conv2dProblem random_problem(std::uint64_t seed, std::uint64_t index);

}  // namespace convscope::matrix
