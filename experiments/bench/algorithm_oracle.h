// SPDX-License-Identifier: Apache-2.0
// algorithm_oracle.h: checks results with the operator's algorithm "reference". It computes the
// operation in f64, from dense tensors of the real numbers that the operands represent. The bound
// is that of the tests: |error| <= error_growth * eps * max(M), where M is the result of the same
// operation on the absolute values of these numbers. For integer outputs, the expected values are
// clipped to the range of the quantised output, and the bound is half a step larger.
//
// The rounding of an input may be part of an operator's definition, as for the sample positions of
// a deformable convolution. Such an operator defines Operator<Problem>::magnitudes. Its reference
// computes in f32 with accumulators in f64, so the reference itself has an error of half an eps.
#pragma once

#include "experiments/bench/operator_contender.h"

namespace convscope {

inline constexpr const char* kOracleAlgorithm = "reference";

// The expected values of each output, and max(M) for each output.
struct ExpectedOutputs {
  std::vector<Tensor> values;
  std::vector<double> largest;
};
CONVSCOPE_API Judgement judge_outputs(const Operands& operands, const OperandSpecs& specs,
                                      const ExpectedOutputs& expected, double allowed);

template <class Problem>
class AlgorithmOracle {
  static constexpr bool kOwnMagnitudes = requires(const Problem& problem, const Operands& at) {
    Operator<Problem>::magnitudes(problem, Direction::forward, at);
  };

 public:
  AlgorithmOracle(const Problem& problem, Direction direction, const Operands& operands)
      : specs_(problem.operands(direction)), eps_(eps_of(problem.dtype, problem.math)) {
    Problem real = problem;
    real.dtype = kOwnMagnitudes && problem.dtype != DType::f64 ? DType::f32 : DType::f64;
    real.math = MathMode::f32;
    real.types.reset();
    real.weight_format = {};
    if constexpr (requires { real.layout; }) real.layout = {};
    const Operands at = run_reference(real, direction, numbers_of(real, operands));
    Operands sizes;
    if constexpr (kOwnMagnitudes) {
      sizes = Operator<Problem>::magnitudes(real, direction, at);
    } else {
      Operands of = at;
      for (Operand& one : of.in) {
        if (one.defined()) one.values = magnitudes(one.values);
      }
      sizes = run_reference(real, direction, of);
    }
    for (std::size_t i = 0; i < specs_.outputs.size(); ++i) {
      expected_.values.push_back(at.out[i].values);
      const Tensor& result = sizes.out[i].values;
      double largest = 0;
      for (std::int64_t e = 0; e < result.numel(); ++e) {
        largest = std::max(largest, result.at(e));
      }
      expected_.largest.push_back(largest);
    }
  }

  Judgement judge(const Operands& operands, double error_growth) const {
    return judge_outputs(operands, specs_, expected_, error_growth * eps_);
  }

 private:
  // Returns the inputs as real numbers (dequantised), stored in the element type of `real`.
  Operands numbers_of(const Problem& real, const Operands& operands) const {
    Operands out;
    for (std::size_t i = 0; i < specs_.inputs.size(); ++i) {
      out.in[i].values = real_numbers(operands.in[i], specs_.inputs[i]).to(real.dtype);
    }
    return out;
  }
  // Runs the reference and returns its outputs.
  static Operands run_reference(const Problem& real, Direction direction, Operands at) {
    const OperandSpecs specs = real.operands(direction);
    for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
      at.out[i].values = Tensor::empty(specs.outputs[i].desc.shape, real.dtype);
    }
    run_algorithm(Operator<Problem>::algorithms(DeviceType::cpu).get(kOracleAlgorithm), real,
                  direction, at);
    return at;
  }

  const OperandSpecs specs_;
  const double eps_;
  ExpectedOutputs expected_;
};

}  // namespace convscope
