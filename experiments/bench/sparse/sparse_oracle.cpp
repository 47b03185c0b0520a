// SPDX-License-Identifier: Apache-2.0
// sparse_oracle.cpp: checks the result of a sparse convolution.
#include "experiments/bench/sparse/sparse_oracle.h"

#include <algorithm>
#include <cmath>

#include "framework/parallel.h"
#include "framework/random.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// Returns the values on the host, in f64.
Tensor numbers_of(const Operand& operand) { return operand.values.to(Device{}).to(DType::f64); }

// Returns `wanted` ascending indices below `all`. At least a quarter of them are at the start of
// the range, and at least a quarter at its end.
std::vector<Index> sample_of(Index all, Index wanted) {
  std::vector<Index> out;
  if (wanted >= all) {
    for (Index i = 0; i < all; ++i) out.push_back(i);
    return out;
  }
  Generator random(7, 1);
  for (Index i = 0; i < (wanted + 3) / 4; ++i) {
    out.push_back(i);
    out.push_back(all - 1 - i);
  }
  while (static_cast<Index>(out.size()) < wanted) {
    out.push_back(random.below(static_cast<std::uint32_t>(all)));
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

SparseOracle::SparseOracle(const SparseConvProblem& problem, Direction direction,
                           const Operands& operands, double most_products)
    : problem_(problem), spec_(problem.operands(direction).outputs[0]) {
  const Tensor first = numbers_of(operands.in[0]), second = numbers_of(operands.in[1]);
  if (direction == Direction::backward_weight) {
    expect_weights(first.data<double>(), second.data<double>(), most_products);
  } else {
    expect_rows(sparse_sums(problem, direction), first.data<double>(), second.data<double>(),
                most_products);
  }
}

void SparseOracle::expect_rows(const SparseSums& sums, const double* in, const double* w,
                               double most) {
  const SparseTable& table = *sums.view.table;
  const Index lanes = sums.lanes, depth = sums.depth;
  std::vector<double> by_tap;  // [taps, depth, lanes]
  for (Index tap = 0; tap < table.taps; ++tap) {
    for (Index d = 0; d < depth; ++d) {
      for (Index lane = 0; lane < lanes; ++lane) by_tap.push_back(w[sums.weight_at(tap, d, lane)]);
    }
  }
  const double site_products =
      problem_.nominal_flops() / 2 / static_cast<double>(std::max<Index>(1, sums.sites)) + 1;
  const std::vector<Index> sites =
      sample_of(sums.sites, std::max<Index>(64, static_cast<Index>(most / site_products)));
  for (const Index site : sites) {
    for (Index lane = 0; lane < lanes; ++lane) index_.push_back(site * lanes + lane);
  }
  expected_.assign(index_.size(), 0.0);
  std::vector<double> sizes(index_.size(), 0.0);
  parallel_for(static_cast<Index>(sites.size()), 16, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      double* const to = expected_.data() + i * lanes;
      double* const size = sizes.data() + i * lanes;
      for (Index tap = 0; tap < table.taps; ++tap) {
        const Index j = table.neighbour(tap, sites[static_cast<std::size_t>(i)]);
        if (j < 0) continue;
        for (Index d = 0; d < depth; ++d) {
          const double factor = in[j * depth + d];
          const double* const row = by_tap.data() + (tap * depth + d) * lanes;
          for (Index lane = 0; lane < lanes; ++lane) {
            to[lane] += factor * row[lane];
            size[lane] += std::abs(factor * row[lane]);
          }
        }
      }
    }
  });
  for (const double size : sizes) largest_ = std::max(largest_, size);
}

void SparseOracle::expect_weights(const double* x, const double* dy, double most) {
  const SparseTable& table = *problem_.map->by_output().table;
  const Index taps = table.taps, c_count = problem_.c, k_count = problem_.k;
  const double element_products = static_cast<double>(std::max<Index>(1, problem_.map->pairs()));
  const std::vector<Index> channels =
      sample_of(k_count * c_count, std::max<Index>(8, static_cast<Index>(most / element_products)));
  const auto count = static_cast<Index>(channels.size());
  for (const Index at : channels) {
    for (Index tap = 0; tap < taps; ++tap) index_.push_back(at * taps + tap);
  }
  expected_.assign(index_.size(), 0.0);
  std::vector<double> sizes(index_.size(), 0.0);
  parallel_for(taps, 1, [&](Index tap, Index) {
    std::vector<double> sum(static_cast<std::size_t>(count)), size(sum);
    for (Index i = 0; i < table.sites; ++i) {
      const Index j = table.neighbour(tap, i);
      if (j < 0) continue;
      for (std::size_t q = 0; q < channels.size(); ++q) {
        const double product =
            dy[i * k_count + channels[q] / c_count] * x[j * c_count + channels[q] % c_count];
        sum[q] += product;
        size[q] += std::abs(product);
      }
    }
    for (std::size_t q = 0; q < channels.size(); ++q) {
      const std::size_t at = q * static_cast<std::size_t>(taps) + static_cast<std::size_t>(tap);
      expected_[at] = sum[q];
      sizes[at] = size[q];
    }
  });
  for (const double size : sizes) largest_ = std::max(largest_, size);
}

Judgement SparseOracle::judge(const Operands& operands, double error_growth) const {
  const Tensor got = numbers_of(operands.out[0]);
  const double* const values = got.data<double>();
  const double bound = error_growth * eps_of(problem_.dtype, problem_.math) * largest_;
  // Returns the position of an element of the result, as text.
  const auto place = [&](Index at) {
    const Index row = got.numel() / std::max<Index>(1, spec_.desc.shape[0]);
    if (spec_.is_weights) {
      return cat("channels ", at / row, " and ", at % row / problem_.taps(), ", tap ",
                 at % problem_.taps());
    }
    return cat("row ", at / row, ", channel ", at % row);
  };
  Judgement out;
  for (Index i = 0; i < got.numel(); ++i) {
    if (std::isfinite(values[i])) continue;
    out.error_ratio = INFINITY;
    out.wrong = cat("expected numbers, got ", values[i], " at ", place(i), " of ", spec_.name);
    return out;
  }
  for (std::size_t i = 0; i < index_.size(); ++i) {
    const double value = values[index_[i]], error = std::abs(value - expected_[i]);
    if (bound > 0) out.error_ratio = std::max(out.error_ratio, error / bound);
    if (error <= bound || !out.wrong.empty()) continue;
    if (bound == 0) out.error_ratio = INFINITY;
    out.wrong = cat("expected ", expected_[i], " at ", place(index_[i]), " of ", spec_.name,
                    ", got ", value);
  }
  return out;
}

}  // namespace convscope
