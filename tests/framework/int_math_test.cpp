// SPDX-License-Identifier: Apache-2.0
// int_math_test.cpp: tests quotients rounded up and down, and the limits of the fast division by a
// constant.
#include "framework/int_math.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>

namespace convscope {
namespace {

TEST(IntMath, QuotientsAreRoundedUpAndDown) {
  static_assert(ceil_div(0, 4) == 0 && ceil_div(1, 4) == 1 && ceil_div(4, 4) == 1);
  static_assert(ceil_div(5, 4) == 2 && round_up(5, 4) == 8 && round_up(8, 4) == 8);
  static_assert(floor_div(-1, 4) == -1 && floor_div(-4, 4) == -1 && floor_div(-5, 4) == -2);
  static_assert(floor_div(7, 4) == 1 && floor_div(0, 4) == 0);
  for (int a = -40; a <= 40; ++a) {
    for (int b = 1; b <= 9; ++b) {
      const int down = floor_div(a, b);
      EXPECT_TRUE(down * b <= a && a < (down + 1) * b) << a << " / " << b;
      if (a < 0) continue;
      EXPECT_TRUE((ceil_div(a, b) - 1) * b < a && a <= ceil_div(a, b) * b) << a << " / " << b;
    }
  }
}

TEST(IntMath, QuotientsHaveTheWiderType) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  static_assert(ceil_div(kLarge, 3) == kLarge / 3 + 1);
  static_assert(round_up(kLarge + 1, 64) == kLarge + 64);
}

// A quotient n / d can be wrong only where it changes: at a multiple of d, or just below one.
void expect_exact_at_steps(int d, const std::initializer_list<std::int64_t>& quotients) {
  constexpr std::int64_t kMax = 0x7fffffff;
  const FastDivisor by(d);
  for (const std::int64_t q : quotients) {
    for (const std::int64_t n : {q * d - 1, q * d, q * d + 1}) {
      if (n < 0 || n > kMax) continue;
      const int whole = static_cast<int>(n);
      ASSERT_EQ(by.divide(whole), whole / d) << n << " / " << d;
      ASSERT_EQ(by.remainder(whole), whole % d) << n << " % " << d;
    }
  }
  ASSERT_EQ(by.divide(0x7fffffff), 0x7fffffff / d) << d;
}

// For one divisor, the error of the fast division grows with n, so the largest n < 2^31 are the
// critical ones. The test covers all divisors up to 2^16, the divisors near each power of two, and
// those near each 2^31 / i, for which there are few quotients.
TEST(IntMath, FastDivisionIsExactAtTheEdges) {
  const auto all_edges = [](std::int64_t d) {
    if (d < 1 || d > 0x7fffffff || HasFatalFailure()) return;
    const std::int64_t last = 0x7fffffff / d;
    expect_exact_at_steps(static_cast<int>(d),
                          {0, 1, 2, 3, last / 2, last / 2 + 1, last - 1, last, last + 1});
  };
  for (int d = 1; d <= 1 << 16; ++d) all_edges(d);
  for (int power = 16; power <= 31; ++power) {
    for (int off = -3; off <= 3; ++off) all_edges((std::int64_t{1} << power) + off);
  }
  for (std::int64_t i = 1; i <= 1 << 15; ++i) {
    for (int off = -1; off <= 1; ++off) all_edges((std::int64_t{1} << 31) / i + off);
  }
}

TEST(IntMath, FastDivisionIsExactForAllSmallNumbers) {
  for (int d = 1; d <= 300; ++d) {
    const FastDivisor by(d);
    for (int n = 0; n < 1 << 12; ++n) ASSERT_EQ(by.divide(n), n / d) << n << " / " << d;
  }
}

TEST(IntMath, FastDivisionIsExactAtAllStepsOfSomeDivisors) {
  for (const int d : {641, 1000, 65535, 65537}) {
    for (std::int64_t q = 0; q <= 0x7fffffff / d; ++q) {
      expect_exact_at_steps(d, {q});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace convscope
