// SPDX-License-Identifier: Apache-2.0
// sparse_oracle.h: checks the result of a sparse convolution. The algorithm `reference` needs
// minutes for a cloud of 100,000 sites, so large results are sampled. A sample of y or dx has all
// channels of the first, the last and some random sites. A sample of dw has all taps of some pairs
// of channels. No element of the whole result may be NaN or infinite.
//
// The expected values are sums in f64 of products of the real numbers that the operands represent.
// The bound is that of the tests: |error| <= growth * eps * M, where M is the largest sum of the
// absolute values of the products.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/bench/operator_contender.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope {

class CONVSCOPE_API SparseOracle {
 public:
  // Takes a sample of at least 64 sites. The sample has more sites if they need at most about
  // `most_products` products.
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
