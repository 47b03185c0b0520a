// SPDX-License-Identifier: Apache-2.0
// rank_test.h: tests whether two sets of times differ, without an assumption on their distribution.
// Source: H. B. Mann, D. R. Whitney 1947, On a test of whether one of two random variables is
//         stochastically larger than the other; and for many tests S. Holm 1979, A simple
//         sequentially rejective multiple test procedure
#pragma once

#include <vector>

#include "framework/export.h"

namespace convscope {

struct RankTest {
  double p = 1;  // two-sided; exact, or with equal values by the normal approximation
  // 95 % confidence interval of the factor b / a, from the ordered ratios of all pairs (Moses;
  // Hollander and Wolfe, Nonparametric Statistical Methods, section 4.3). Both ends are 0 if there
  // are too few values.
  double ratio_low = 0, ratio_high = 0;
};
// Takes values above 0, at least one on each side.
CONVSCOPE_API RankTest rank_test(const std::vector<double>& a, const std::vector<double>& b);

// Returns the p values of several tests, corrected by Holm's method. A NaN stands for a missing
// test: it stays NaN and does not count.
CONVSCOPE_API std::vector<double> holm(const std::vector<double>& p);

}  // namespace convscope
