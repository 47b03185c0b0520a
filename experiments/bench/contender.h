// SPDX-License-Identifier: Apache-2.0
// contender.h: a convolution algorithm in a benchmark (operator_contender.h), with the tensors that
// SampledReference checks. Used by the table of algorithms (conv2d_bench.h) and by the ladders
// (ladder_bench.h).
#pragma once

#include "experiments/bench/operator_contender.h"
#include "experiments/bench/sampled_reference.h"
#include "framework/tensor.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

// Returns whether the tensors are integer codes with scales.
inline bool holds_codes(const Conv2dProblem& problem) {
  return problem.types && is_code(problem.types->w);
}

// The tensors of one problem and direction: on the host in f32, on the device in the problem's
// types. Values are normally distributed, do not depend on the number of threads, and are exactly
// representable in the problem's type. Integer problems have random integers with scales; their
// host tensors hold the real numbers that the integers represent. Their forward pass has a bias,
// which shifts the results to the middle of the range of y, and a ReLU if y is unsigned.
// Block-sparse weights have random positions. Dense algorithms and baselines get the same weights,
// with zeros at the pruned positions.
class CONVSCOPE_API BenchData {
 public:
  BenchData(const Conv2dProblem& problem, Direction direction, Device device);

  const Operands& operands() const { return operands_; }
  Conv2dInputs inputs() const {
    return {first_host_.data<float>(), second_host_.data<float>(), behind_};
  }
  Operands sparse_operands() const;  // of a problem with block-sparse weights
  // Returns the result on the host, row-major, in f32; quantised results are dequantised. With
  // `sparse`, returns the stored blocks of dw, and NaN elsewhere.
  const float* result(bool sparse = false) const;
  bool has_codes() const { return is_code(operands_.out[0].values.dtype()); }  // result is codes

  // The inputs for a baseline, row-major on the host, quantised or f32. The baseline writes its
  // result to `output`.
  struct Plain {
    Tensor first, second, output;
  };
  const Plain& plain() const;
  // Returns the real numbers of plain().output.
  const float* result_of_plain() const;

  const Device device;

 private:
  void make_numbers(const Conv2dProblem& problem, Direction direction);
  void make_codes(const Conv2dProblem& problem, Direction direction);
  Tensor weights_where_kept(const Conv2dProblem& problem, const Tensor& dense) const;
  void take_result(const Tensor& images) const;

  const Direction direction_;
  const OperandSpec sparse_spec_;
  const Operand places_;      // block positions of sparse weights, on the host
  Operand places_there_;      // the same on the device: what a direction reads or writes
  const OperandSpecs specs_;  // of dense weights
  Operands operands_;
  Tensor first_host_, second_host_, output_host_;
  Tensor bias_host_;
  Conv2dBehind behind_;
  mutable Plain plain_;
};

class CONVSCOPE_API Contender : public OperatorContender<Conv2dProblem> {
 public:
  // Takes a problem with the sizes and types of `data`. The weights of the problem may be dense
  // while those of `data` are sparse.
  Contender(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem, Direction direction,
            const BenchData& data, const Switches& switches = {}, std::string name = "")
      : OperatorContender(
            algorithm, problem, direction,
            problem.weight_format.is_dense() ? data.operands() : data.sparse_operands(), switches),
        data_(data),
        name_(name.empty() ? algorithm.name : std::move(name)) {}

  const char* name() const override { return name_.c_str(); }
  double check(const SampledReference& reference);
  std::string look() override;  // compares some elements with dot products of the current inputs

 private:
  std::string not_written();

  const BenchData& data_;
  const std::string name_;
};

}  // namespace convscope
