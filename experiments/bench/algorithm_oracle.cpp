// SPDX-License-Identifier: Apache-2.0
// algorithm_oracle.cpp: checks results with the operator's algorithm "reference". It computes the
// operation in f64, from dense tensors of the real numbers that the operands represent, and again
// from the absolute values of these numbers.
#include "experiments/bench/algorithm_oracle.h"

#include <algorithm>
#include <cmath>

namespace convscope {

Judgement judge_outputs(const Operands& operands, const OperandSpecs& specs,
                        const ExpectedOutputs& expected, double allowed) {
  Judgement out;
  for (std::size_t o = 0; o < specs.outputs.size(); ++o) {
    const Tensor got = real_numbers(operands.out[o], specs.outputs[o]);
    if (!has_clean_lanes(operands.out[o].values.to(Device{}), specs.outputs[o].desc.shape,
                         specs.outputs[o].desc.layout)) {
      out.wrong = cat("expected zeros after the last channel of ", specs.outputs[o].name);
      out.error_ratio = INFINITY;
      return out;
    }
    const Tensor& right = expected.values[o];
    const Quantisation meaning = operands.out[o].to(Device{}).quantisation();
    const double step = meaning.scales == nullptr ? 0 : 0.5 * meaning.scale(0);
    const double bound = allowed * expected.largest[o] + step;
    // The expected value is clipped to the range of the quantised output.
    const CodeRange codes = code_range(specs.outputs[o].desc.dtype, meaning);
    const auto within = [&](double real) {
      if (meaning.scales == nullptr) return real;
      return std::clamp(real, meaning.scale(0) * (codes.low - meaning.zero_point(0)),
                        meaning.scale(0) * (codes.high - meaning.zero_point(0)));
    };
    // A sparse gradient has elements only for kept weights. At pruned weights, `got` is 0 and is
    // not compared.
    const bool sparse = !specs.outputs[o].desc.sparsity.is_dense();
    for (std::int64_t i = 0; i < got.numel(); ++i) {
      const double error = std::abs(got.at(i) - within(right.at(i)));
      if (sparse && got.at(i) == 0) continue;
      if (error <= bound) {
        if (bound > 0) out.error_ratio = std::max(out.error_ratio, error / bound);
        continue;
      }
      if (out.wrong.empty()) {
        out.wrong = cat("expected ", within(right.at(i)), " at element ", i, " of ",
                        specs.outputs[o].name, ", got ", got.at(i));
      }
      out.error_ratio = std::max(out.error_ratio, std::isnan(error) ? INFINITY : error / bound);
    }
  }
  return out;
}

}  // namespace convscope
