// SPDX-License-Identifier: Apache-2.0
// sparse_oracle.h: checks the result of a sparse convolution. The algorithm `reference` needs
// minutes for a cloud of 100,000 sites, so large problems are sampled: all channels of some sites
// (first, last and random ones), and for dw all taps of some pairs of channels. Every element must
// be a number, sampled or not.
//
// The expected values are sums in double over the real numbers of the operands. The bound is that
// of the tests: |error| <= growth * eps * M, with M the largest of the same sums over magnitudes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/bench/operator_contender.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope {

class CONVSCOPE_API SparseOracle {
 public:
  // Takes a sample of about `most_products` products at most, 64 sites at least.
  SparseOracle(const SparseConvProblem& problem, Direction direction, const Operands& operands,
               double most_products = 5e7);

  Judgement judge(const Operands& operands, double error_growth) const;
  std::int64_t looked_at() const { return static_cast<std::int64_t>(index_.size()); }

 private:
  void expect_rows(const SparseSums& sums, const double* in, const double* w, double most);
  void expect_weights(const double* x, const double* dy, double most);

  const SparseConvProblem problem_;
  const OperandSpec spec_;           // of the result
  std::vector<std::int64_t> index_;  // of elements of the result
  std::vector<double> expected_;
  double largest_ = 0;  // M
};

}  // namespace convscope
