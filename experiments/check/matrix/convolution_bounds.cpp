// SPDX-License-Identifier: Apache-2.0
// convolution_bounds.cpp: the allowed difference from the reference (convolution_case.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/check/matrix/convolution_case.h"

namespace convscope::matrix {

double allowed_error(const Conv2dProblem& problem, double error_growth, double expected,
                     double largest) {
  const double f32 =
      error_growth * static_cast<double>(std::numeric_limits<float>::epsilon()) * largest;
  if (problem.dtype == DType::bf16) return f32 + 0x1p-8 * std::abs(expected);
  // The spacing of f16 values is constant (2^-24) below 2^-14.
  if (problem.dtype == DType::f16) return f32 + 0x1p-11 * std::abs(expected) + 0x1p-24;
  // TF32 rounds each operand by at most 2^-10 of its value, so a product has at most twice this
  // relative error.
  return problem.math == MathMode::tf32 ? f32 + 0x1p-9 * largest : f32;
}

double allowed_l2(const Conv2dProblem& problem) {
  if (problem.dtype == DType::bf16) return 1e-2;
  if (problem.dtype == DType::f16) return 2e-3;
  return problem.math == MathMode::tf32 ? 1e-3 : 2e-6;
}

double ConvolutionCase::largest_of_tile(Direction direction, bool extra) const {
  const Conv2dProblem& z = problem_;
  const auto largest = [](const std::vector<double>& of) {
    return of.empty() ? 0.0 : *std::ranges::max_element(of);
  };
  const auto largest_sum = [&](const std::vector<double>& of, std::int64_t rows,
                               std::int64_t columns) {  // [any, rows, columns] -> [rows]
    std::vector<double> sums(static_cast<std::size_t>(rows));
    for (std::size_t at = 0; at < of.size(); ++at) {
      sums[at / static_cast<std::size_t>(columns) % sums.size()] += of[at];
    }
    return largest(sums);
  };
  const std::int64_t taps = z.r * z.s;
  switch (direction) {
    case Direction::forward:
      return largest(x_.doubles(true)) * largest_sum(dense_w(true), z.k, z.c_per_group() * taps) +
             (extra ? largest(b_.doubles(true)) : 0);
    case Direction::backward_data:
      return largest(y_.doubles(true)) * largest_sum(dense_w(true), z.c_per_group(), taps);
    case Direction::backward_weight:
      return largest(x_.doubles(true)) * largest_sum(y_.doubles(true), z.k, z.p() * z.q()) +
             (extra ? largest(dw_before_.doubles(true)) : 0);
  }
  return 0;
}

double ConvolutionCase::allowed(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                                double value) {
  if (tier_ == Tier::exact) return 0;
  const auto terms = static_cast<double>(problem_.sum_length(direction));
  const Expected& expected = expect(direction, extra);
  if (!rounds_one_way(tier_)) {
    return allowed_error(problem_, algorithm.growth(terms), value, expected.largest);
  }
  if (!algorithm.errs_by_tile()) {
    return allowed_error(problem_, algorithm.worst_growth(terms), value, expected.largest);
  }
  double& tile_largest = expected_[static_cast<int>(direction)][extra ? 1 : 0].largest_of_tile;
  if (tile_largest < 0) tile_largest = largest_of_tile(direction, extra);  // computed once
  return allowed_error(problem_, algorithm.worst_growth(terms), value, tile_largest);
}

}  // namespace convscope::matrix
