// SPDX-License-Identifier: Apache-2.0
// execute.h: runs a chosen algorithm. If `checked_by` is set, it runs that second algorithm too. It
// throws an error of kind kRun when the results differ by more than the sum of both error bounds.
// Each comparison is recorded (check_results.h).
#pragma once

#include <string>

#include "layers/dispatch/check_results.h"
#include "layers/dispatch/run.h"
#include "layers/dispatch/select.h"

namespace convscope {

// Returns the operands of a second run: the same inputs, and new outputs of the same types and
// shapes. With `accumulate` the new outputs start from the values of the old ones.
CONVSCOPE_API Operands with_other_outputs(const Operands& operands);
// Returns whether all arrays are floating point. Errors are then measured against
// over_magnitudes(), the same call on |x|, |w|, ... Integer products are exact, so errors of
// integer arrays are measured against the outputs.
CONVSCOPE_API bool has_magnitudes(const Operands& operands);
CONVSCOPE_API Operands over_magnitudes(const Operands& operands, Tensor& residual);
// Returns operands whose only output is the size to which errors of transforms are relative
// (Algorithm::errs_by_tile()). The size is a product: the largest magnitude of the first input,
// times the largest sum of magnitudes of those elements of the second input that contribute to one
// output. It ignores that outputs at the border have fewer terms. For each array that is added to
// the result, its largest magnitude is added to the size.
CONVSCOPE_API Operands over_tiles(const Operands& operands, const OperandSpecs& specs,
                                  Direction direction);

// Requires |first - second| <= relative_bound max(sizes) for each output. Outputs of an integer
// type may differ by one more. With several outputs, the output that came nearest to its bound is
// recorded.
struct Comparison {
  const char* operation;
  std::string layer;
  const char* first_name;
  const char* second_name;
  Direction direction;
  std::string problem;
  double relative_bound;
};
CONVSCOPE_API void compare_outputs(const Comparison& comparison, const Operands& first,
                                   const Operands& second, const Operands& sizes);

// Returns how many products are added to one element of the output. If the problem has no
// sum_length(), the result is the average.
template <class Problem>
double longest_sum(const Problem& problem, Direction direction, const Operands& operands) {
  if constexpr (requires { problem.sum_length(direction); }) {
    return static_cast<double>(problem.sum_length(direction));
  } else {
    return problem.nominal_flops() / 2 /
           static_cast<double>(std::max<std::int64_t>(1, operands.out[0].values.numel()));
  }
}

template <class Problem>
void execute(const Choice<Problem>& choice, const Problem& problem, Direction direction,
             const Operands& operands) {
  const Algorithm<Problem>& algorithm = *choice.algorithm;
  if (choice.checked_by == nullptr || problem.is_empty()) {
    return run_algorithm(algorithm, problem, direction, operands);
  }
  const Operands other = with_other_outputs(operands);
  Tensor residual;
  const bool sums = has_magnitudes(operands);
  const bool by_tile = algorithm.errs_by_tile() || choice.checked_by->errs_by_tile();
  Operands sizes = operands;
  // If an operator has inputs that are not operands of products, it computes the sums of magnitudes
  // itself (Operator<Problem>::magnitudes).
  constexpr bool kOwn = requires { Operator<Problem>::magnitudes(problem, direction, operands); };
  if constexpr (kOwn) {
    sizes = Operator<Problem>::magnitudes(problem, direction, operands);
  } else if (sums) {
    sizes = by_tile ? over_tiles(operands, problem.operands(direction), direction)
                    : over_magnitudes(operands, residual);
  }
  run_algorithm(algorithm, problem, direction, operands);
  run_algorithm(*choice.checked_by, problem, direction, other);
  if (sums && !kOwn && !by_tile) run_algorithm(algorithm, problem, direction, sizes);
  const double terms = longest_sum(problem, direction, operands);
  const double growth = algorithm.worst_growth(terms) + choice.checked_by->worst_growth(terms);
  compare_outputs({.operation = Operator<Problem>::kOperation,
                   .layer = choice.layer,
                   .first_name = algorithm.name,
                   .second_name = choice.checked_by->name,
                   .direction = direction,
                   .problem = problem.text(),
                   .relative_bound = growth * eps_of(problem.dtype, problem.math)},
                  operands, other, sizes);
}

}  // namespace convscope
