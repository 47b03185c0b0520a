// SPDX-License-Identifier: Apache-2.0
// int_math.h: arithmetic with whole numbers for hosts and GPUs: quotients rounded up, and a fast
// division by a number that is known before a kernel starts.
//
// All is forced inline, so that *_simd.cpp files can use it (framework/simd/simd.h says why).
#pragma once

#include <cstdint>

namespace convscope {

// a / b rounded up, for a >= 0 and b > 0 (and, as / rounds to zero, for -b < a < 0).
template <class A, class B>
[[gnu::always_inline]] constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// a / b rounded down, for b > 0 and any a.
template <class A, class B>
[[gnu::always_inline]] constexpr auto floor_div(A a, B b) {
  return a >= 0 ? a / b : -ceil_div(-a, b);
}

// The smallest multiple of b that is at least a.
template <class A, class B>
[[gnu::always_inline]] constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

// n / d for 0 <= n < 2^31 and 1 <= d < 2^31 by one product: a GPU has no instruction for a
// quotient and needs about twenty. With 2^(s-1) < d <= 2^s and m = 2^(31+s) / d rounded up (it has
// 32 bits, because d > 2^(s-1)), m d = 2^(31+s) + e with 0 <= e < d <= 2^s. So n m / 2^(31+s) is
// n / d + (n / d) e / 2^(31+s), and the second summand is below (2^31 / d) 2^s / 2^(31+s) = 1 / d:
// too little to reach the next whole number. 2 n has 32 bits too, and (2 n) m / 2^32 is one
// instruction of a GPU, the high half of a product; a shift by s follows.
struct FastDivisor {
  int d = 1;
  std::uint32_t multiplier = 1u << 31;  // m
  int shift = 0;                        // s

  constexpr FastDivisor() = default;
  constexpr explicit FastDivisor(int divisor) : d(divisor < 1 ? 1 : divisor) {
    while ((std::int64_t{1} << shift) < d) ++shift;
    const auto by = static_cast<std::uint64_t>(d);
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + shift)) + by - 1) / by);
  }
  constexpr int divide(int n) const {
    const std::uint64_t twice = static_cast<std::uint32_t>(n) * 2u;
    return static_cast<int>(static_cast<std::uint32_t>((twice * multiplier) >> 32) >> shift);
  }
  constexpr int remainder(int n) const { return n - divide(n) * d; }
};

}  // namespace convscope
