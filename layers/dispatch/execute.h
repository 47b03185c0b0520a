// SPDX-License-Identifier: Apache-2.0
// execute.h: runs a chosen algorithm; with `checked_by` runs the second one too and fails, with
// kind kRun, when the two differ by more than their error bounds together. What was compared is
// noted (check_results.h).
#pragma once

#include <string>

#include "layers/dispatch/check_results.h"
#include "layers/dispatch/run.h"
#include "layers/dispatch/select.h"

namespace convscope {

// The outputs of a second run: of the same kind; with `accumulate` they start from the same
// numbers.
CONVSCOPE_API Operands with_other_outputs(const Operands& operands);
// The same sum over magnitudes, whose result says how large an error may be. Integers are summed
// exactly: for them it is no sum, and compare_outputs() looks at the outputs.
CONVSCOPE_API bool has_magnitudes(const Operands& operands);
CONVSCOPE_API Operands over_magnitudes(const Operands& operands, Tensor& residual);
// For transforms (Card::errs_by_tile()): the largest magnitude of the first input times the largest
// sum over the magnitudes of the second that goes into one element of the output, borders or not,
// and what is added to it; as the only output.
CONVSCOPE_API Operands over_tiles(const Operands& operands, const OperandSpecs& specs,
                                  Direction direction);

// |first - second| <= relative_bound max(sizes) for each output, plus one step of an integer type.
// Of several outputs the one is noted that came nearest to its bound.
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

// How many products are added to one element of the output; on average where the problem does not
// say.
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
  const Card<Problem>& card = *choice.algorithm;
  if (choice.checked_by == nullptr || problem.is_empty()) {
    return run_card(card, problem, direction, operands);
  }
  const Operands other = with_other_outputs(operands);
  Tensor residual;
  const bool sums = has_magnitudes(operands);
  const bool by_tile = card.errs_by_tile() || choice.checked_by->errs_by_tile();
  Operands sizes = operands;
  // Of a layer whose inputs are not all factors, magnitudes are its own matter.
  constexpr bool kOwn = requires { HeavyLayer<Problem>::magnitudes(problem, direction, operands); };
  if constexpr (kOwn) {
    sizes = HeavyLayer<Problem>::magnitudes(problem, direction, operands);
  } else if (sums) {
    sizes = by_tile ? over_tiles(operands, problem.operands(direction), direction)
                    : over_magnitudes(operands, residual);
  }
  run_card(card, problem, direction, operands);
  run_card(*choice.checked_by, problem, direction, other);
  if (sums && !kOwn && !by_tile) run_card(card, problem, direction, sizes);
  const double terms = longest_sum(problem, direction, operands);
  const double growth = card.worst_growth(terms) + choice.checked_by->worst_growth(terms);
  compare_outputs({.operation = HeavyLayer<Problem>::kOperation,
                   .layer = choice.layer,
                   .first_name = card.name,
                   .second_name = choice.checked_by->name,
                   .direction = direction,
                   .problem = problem.text(),
                   .relative_bound = growth * eps_of(problem.dtype, problem.math)},
                  operands, other, sizes);
}

}  // namespace convscope
