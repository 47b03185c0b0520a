// SPDX-License-Identifier: Apache-2.0
// algorithm_answers.cpp: checks how an algorithm handles NaN and fused epilogues.
#include "experiments/check/matrix/algorithm_answers.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "experiments/check/matrix/check_problems.h"
#include "experiments/check/matrix/convolution_case.h"
#include "layers/dispatch/run.h"

namespace convscope::matrix {
namespace {

std::vector<float> forward(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                           const float* x, const float* w, const Conv2dEpilogue& epilogue) {
  const Scratch<Conv2dProblem> scratch(algorithm, problem, Direction::forward, {});
  std::vector<float> y(static_cast<std::size_t>(problem.y_shape().numel()));
  algorithm.forward(
      {problem, x, w, nullptr, y.data(), scratch.workspace(), epilogue, scratch.prepare(w)});
  return y;
}

}  // namespace

std::string fault_of_nan(const Conv2dAlgorithm& algorithm) {
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=2,c=3,h=9,w=21,k=5,r=3,s=3,pad=1,stride=1x2");
  if (!support_of(algorithm, problem, Direction::forward).yes) return "";
  std::vector<float> x(static_cast<std::size_t>(problem.x_shape().numel()), 1.0f);
  const std::vector<float> w(static_cast<std::size_t>(problem.w_shape().numel()), 0.5f);
  x[static_cast<std::size_t>((3 + 1) * 9 * 21 + 4 * 21 + 10)] =
      std::numeric_limits<float>::quiet_NaN();  // n 1, c 1, h 4, w 10
  const std::vector<float> y = forward(algorithm, problem, x.data(), w.data(), {});
  for (std::int64_t i = 0; i < problem.y_shape().numel(); ++i) {
    const std::int64_t n = i / (problem.k * problem.p() * problem.q());
    const std::int64_t p = i / problem.q() % problem.p();
    const std::int64_t q = i % problem.q();
    const bool reads = n == 1 && std::abs(p - 4) <= 1 && std::abs(2 * q - 10) <= 1;
    if (std::isnan(y[static_cast<std::size_t>(i)]) == reads) continue;
    return cat("of ", problem.text(), " with x[1,1,4,10] NaN: expected element ", i, " of y ",
               reads ? "to be NaN, because its kernel covers that x, got "
                     : "to be a number, because its kernel does not cover that x, got ",
               y[static_cast<std::size_t>(i)]);
  }
  return "";
}

std::string fault_of_epilogue(const Conv2dAlgorithm& algorithm) {
  if (!algorithm.fuses_epilogue) return "";
  for (const Conv2dProblem& problem : small_problems(2)) {
    if (!support_of(algorithm, problem, Direction::forward).yes) continue;
    const Numbers x(problem.x_shape().numel(), Tier::bounded, 1, DType::f32);
    const Numbers w(problem.w_shape().numel(), Tier::bounded, 2, DType::f32);
    const Numbers residual(problem.y_shape().numel(), Tier::bounded, 3, DType::f32);
    const std::vector<float> plain = forward(algorithm, problem, x.data(), w.data(), {});
    for (const bool add : {false, true}) {
      for (const bool relu : {false, true}) {
        std::vector<float> right = plain;
        for (std::size_t i = 0; i < right.size(); ++i) {
          if (add) right[i] += residual.data()[i];
          if (relu && right[i] <= 0) right[i] = 0;
        }
        const std::vector<float> got = forward(algorithm, problem, x.data(), w.data(),
                                               {add ? residual.data() : nullptr, relu});
        if (std::memcmp(got.data(), right.data(), right.size() * sizeof(float)) == 0) continue;
        return cat("of ", problem.text(), " with ", add ? "a residual" : "no residual",
                   relu ? " and relu" : "",
                   ": y has other bits than y without an epilogue followed by a separate pass, "
                   "although the algorithm says fuses_epilogue");
      }
    }
  }
  return "";
}

}  // namespace convscope::matrix
