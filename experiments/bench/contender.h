// SPDX-License-Identifier: Apache-2.0
// contender.h: a convolution algorithm that takes part in a benchmark (heavy_contender.h), with the
// tensors that SampledReference judges. Used by the table of algorithms (conv2d_bench.h) and by the
// ladders (ladder_bench.h).
#pragma once

#include "experiments/bench/heavy_contender.h"
#include "experiments/bench/sampled_reference.h"
#include "framework/tensor.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

// The tensors of one problem and direction: on the host in f32, on the device in the problem's
// type.
// Normal numbers, the same for any number of threads; half types get numbers that they hold
// exactly. Block-sparse weights lie at random places; the dense tensors hold the same numbers, and
// 0 elsewhere, for dense algorithms and other libraries.
class CONVSCOPE_API BenchData {
 public:
  BenchData(const Conv2dProblem& problem, Direction direction, Device device);

  Conv2dInputs inputs() const { return {first_host_.data<float>(), second_host_.data<float>()}; }
  // On the host, in f32; `sparse`: what came out in stored blocks of dw, and NaN elsewhere.
  const float* result(bool sparse = false) const;
  const Tensor& output_host() const { return output_host_; }  // where result() lies

  const Device device;

  Operands operands() const { return {.in = {first_, second_}, .out = {output_}}; }
  Operands sparse_operands() const;  // of a problem with block-sparse weights

 private:
  Tensor weights_where_kept(const Conv2dProblem& problem, Tensor dense) const;

  const OperandSpec sparse_spec_;
  const Operand places_;  // of sparse weights; its values are what a direction reads or writes
  const Tensor first_host_, second_host_, output_host_;
  const Tensor first_, second_;
  const Direction direction_;
  const ActivationLayout output_layout_;
  const Tensor output_;
};

class CONVSCOPE_API Contender : public HeavyContender<Conv2dProblem> {
 public:
  // The problem has the sizes and the type that `data` was made for; its weights may be dense where
  // those of `data` are sparse.
  Contender(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem, Direction direction,
            const BenchData& data, const Switches& switches = {}, std::string name = "")
      : HeavyContender(algorithm, problem, direction,
                       problem.weight_format.is_dense() ? data.operands() : data.sparse_operands(),
                       switches),
        data_(data),
        name_(name.empty() ? algorithm.name : std::move(name)) {}

  const char* name() const override { return name_.c_str(); }
  double check(const SampledReference& reference);

 private:
  const BenchData& data_;
  const std::string name_;
};

}  // namespace convscope
