// SPDX-License-Identifier: Apache-2.0
// student_t.h: tests whether two means differ by more than their noise: Student's t distribution
// and Welch's test (B. L. Welch, 1947, The generalization of 'Student's' problem when several
// different population variances are involved, Biometrika 34; degrees of freedom: F. E.
// Satterthwaite, 1946).
#pragma once

#include "experiments/report/text_table.h"

namespace convscope {

// Returns I_x(a, b), the regularised incomplete beta function, for a, b > 0 and 0 <= x <= 1, by its
// continued fraction (DLMF 8.17.22) with Lentz's method; about 14 digits.
CONVSCOPE_API double incomplete_beta(double a, double b, double x);

// Returns the probability that |T| exceeds |t| with so many degrees of freedom: I_x(degrees / 2, 1
// / 2) at x = degrees / (degrees + t^2).
CONVSCOPE_API double student_two_sided_p(double t, double degrees);
// Returns the t that |T| exceeds with probability p; 0 < p < 1.
CONVSCOPE_API double student_critical_t(double p, double degrees);

// Tests whether b.mean - a.mean differs from 0. Each sample has at least two values, and the values
// of at least one sample differ.
struct WelchTest {
  double t = 0, degrees = 0;
  double p = 1;              // two-sided
  double low = 0, high = 0;  // 95 % confidence interval of the difference
};
CONVSCOPE_API WelchTest welch_test(const MeanStd& a, const MeanStd& b);

}  // namespace convscope
