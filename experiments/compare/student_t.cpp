// SPDX-License-Identifier: Apache-2.0
// student_t.cpp: Student's t distribution and Welch's test.
#include "experiments/compare/student_t.h"

#include <cmath>

#include "framework/check.h"

namespace convscope {
namespace {

// Returns the continued fraction of DLMF 8.17.22, which converges fast for x < (a + 1) / (a + b +
// 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;  // replaces 0, as Lentz's method requires
  constexpr int kMaxTerms = 100000;
  const auto nonzero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / nonzero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m <= kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / nonzero(1 + even * d);
    c = nonzero(1 + even / c);
    fraction *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / nonzero(1 + odd * d);
    c = nonzero(1 + odd / c);
    fraction *= c * d;
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return fraction;
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
  CONVSCOPE_CHECK(a > 0 && b > 0 && x >= 0 && x <= 1, "incomplete_beta",
                  "expected a, b > 0 and 0 <= x <= 1, got ", a, ", ", b, ", ", x);
  if (x == 0 || x == 1) return x;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  // I_x(a, b) = 1 - I_{1-x}(b, a). The code uses the side whose continued fraction converges fast.
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_two_sided_p(double t, double degrees) {
  CONVSCOPE_CHECK(degrees > 0, "student_t", "expected more than 0 degrees of freedom, got ",
                  degrees);
  if (std::isinf(t)) return 0;
  return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double student_critical_t(double p, double degrees) {
  CONVSCOPE_CHECK(p > 0 && p < 1, "student_t", "expected 0 < p < 1, got ", p);
  double low = 0, high = 1;
  while (student_two_sided_p(high, degrees) > p && high < 1e150) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-14 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (student_two_sided_p(middle, degrees) > p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

WelchTest welch_test(const MeanStd& a, const MeanStd& b) {
  CONVSCOPE_CHECK(a.count >= 2 && b.count >= 2, "welch_test",
                  "expected at least two values on each side, got ", a.count, " and ", b.count);
  const auto n = static_cast<double>(a.count), m = static_cast<double>(b.count);
  const double va = a.std * a.std / n, vb = b.std * b.std / m;  // of the means
  CONVSCOPE_CHECK(va + vb > 0, "welch_test", "expected a deviation on one side, got none");
  WelchTest out;
  const double difference = b.mean - a.mean, error = std::sqrt(va + vb);
  out.t = difference / error;
  out.degrees = (va + vb) * (va + vb) / (va * va / (n - 1) + vb * vb / (m - 1));
  out.p = student_two_sided_p(out.t, out.degrees);
  const double half = student_critical_t(0.05, out.degrees) * error;
  out.low = difference - half;
  out.high = difference + half;
  return out;
}

}  // namespace convscope
