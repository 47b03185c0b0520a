// SPDX-License-Identifier: Apache-2.0
// rank_test.cpp: the test of Mann and Whitney, and Holm's correction.
#include "experiments/compare/rank_test.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "framework/check.h"

namespace convscope {
namespace {

using Values = std::vector<double>;

// Returns P(U <= u) for u = 0 .. n m, when every order of the n + m values is equally likely. U is
// the number of pairs of one value of each sample in which the second is larger.
const Values& rank_distribution(std::size_t n, std::size_t m) {
  static thread_local std::map<std::pair<std::size_t, std::size_t>, Values> known;
  Values& out = known[{n, m}];
  if (!out.empty()) return out;
  // ways[k][u] is the number of sets of k of the ranks 1 to `rank` for which the statistic U is u.
  std::vector<Values> ways(n + 1, Values(n * m + 1, 0));
  ways[0][0] = 1;
  for (std::size_t rank = 1; rank <= n + m; ++rank) {
    for (std::size_t k = std::min(n, rank); k > 0; --k) {
      if (rank - k > m) continue;  // so many others are not there
      for (std::size_t u = n * m + 1; u-- > rank - k;) ways[k][u] += ways[k - 1][u - (rank - k)];
    }
  }
  out = ways[n];
  std::partial_sum(out.begin(), out.end(), out.begin());
  const double all = out.back();
  for (double& value : out) value /= all;
  return out;
}

// Returns the two-sided p of the normal approximation, with the corrections for equal values and
// for continuity.
double normal_p(const Values& a, const Values& b, double u) {
  Values all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::ranges::sort(all);
  double ties = 0;
  for (std::size_t i = 0; i < all.size();) {
    const auto same = std::ranges::equal_range(all, all[i]);
    const auto count = static_cast<double>(same.size());
    ties += count * count * count - count;
    i += same.size();
  }
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)));
  if (!(variance > 0)) return 1;  // all values are equal
  const double distance = std::max(0.0, std::abs(u - n * m / 2) - 0.5);
  return std::erfc(distance / std::sqrt(2 * variance));
}

}  // namespace

RankTest rank_test(const Values& a, const Values& b) {
  CONVSCOPE_CHECK(!a.empty() && !b.empty(), "rank_test",
                  "expected at least one value on each side, got ", a.size(), " and ", b.size());
  double u = 0;
  bool ties = false;
  Values ratios;
  for (const double x : a) {
    for (const double y : b) {
      u += y > x ? 1 : y == x ? 0.5 : 0;
      ties = ties || x == y;
      ratios.push_back(y / x);
    }
  }
  std::ranges::sort(ratios);
  const Values& distribution = rank_distribution(a.size(), b.size());
  RankTest out;
  const double smaller = std::min(u, static_cast<double>(ratios.size()) - u);
  out.p =
      ties ? normal_p(a, b, u) : std::min(1.0, 2 * distribution[static_cast<std::size_t>(smaller)]);
  // The ends of the interval are the k-th smallest and the k-th largest ratio, for the largest k
  // with P(U <= k - 1) <= 2.5 %.
  const auto k = static_cast<std::size_t>(std::ranges::upper_bound(distribution, 0.025) -
                                          distribution.begin());
  if (k > 0) {
    out.ratio_low = ratios[k - 1];
    out.ratio_high = ratios[ratios.size() - k];
  }
  return out;
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!std::isnan(p[i])) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return p[i]; });
  std::vector<double> out = p;
  double least = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    least = std::min(1.0, std::max(least, static_cast<double>(order.size() - k) * p[order[k]]));
    out[order[k]] = least;
  }
  return out;
}

}  // namespace convscope
