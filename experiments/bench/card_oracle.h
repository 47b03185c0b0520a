// SPDX-License-Identifier: Apache-2.0
// card_oracle.h: is a result right? The layer's card "reference" says so: it computes the same from
// the real numbers that the operands stand for, dense and in f64, and once more from their
// magnitudes, M. The bound is that of the tests: |error| <= error_growth * eps * max(M), and half a
// step more for outputs of integers, which end where the codes of their type end. For problems that
// the reference computes in little time.
#pragma once

#include "experiments/bench/heavy_contender.h"

namespace convscope {

inline constexpr const char* kOracleCard = "reference";

// The real numbers of each output, and the largest of their sums over magnitudes.
struct ExpectedOutputs {
  std::vector<Tensor> values;
  std::vector<double> largest;
};
CONVSCOPE_API Judgement judge_outputs(const Operands& operands, const OperandSpecs& specs,
                                      const ExpectedOutputs& expected, double allowed);

template <class Problem>
class CardOracle {
 public:
  CardOracle(const Problem& problem, Direction direction, const Operands& operands)
      : specs_(problem.operands(direction)), eps_(eps_of(problem.dtype, problem.math)) {
    Problem real = problem;
    real.dtype = DType::f64;
    real.math = MathMode::f32;
    real.types.reset();
    real.weight_format = {};
    if constexpr (requires { real.layout; }) real.layout = ActivationLayout::nchw;
    const OperandSpecs plain = real.operands(direction);
    const Card<Problem>& card = HeavyLayer<Problem>::algorithms(DeviceType::cpu).get(kOracleCard);
    for (const bool sizes : {false, true}) {
      Operands at;
      for (std::size_t i = 0; i < specs_.inputs.size(); ++i) {
        const Tensor numbers = real_numbers(operands.in[i], specs_.inputs[i]);
        at.in[i] = sizes ? magnitudes(numbers) : numbers;
      }
      for (std::size_t i = 0; i < plain.outputs.size(); ++i) {
        at.out[i] = Tensor::empty(plain.outputs[i].shape, DType::f64);
      }
      run_card(card, real, direction, at);
      for (std::size_t i = 0; i < plain.outputs.size(); ++i) {
        const Tensor& result = at.out[i].values;
        if (!sizes) {
          expected_.values.push_back(result);
          continue;
        }
        double largest = 0;
        for (std::int64_t e = 0; e < result.numel(); ++e) {
          largest = std::max(largest, result.at(e));
        }
        expected_.largest.push_back(largest);
      }
    }
  }

  Judgement judge(const Operands& operands, double error_growth) const {
    return judge_outputs(operands, specs_, expected_, error_growth * eps_);
  }

 private:
  const OperandSpecs specs_;
  const double eps_;
  ExpectedOutputs expected_;
};

}  // namespace convscope
