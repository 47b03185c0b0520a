// SPDX-License-Identifier: Apache-2.0
// int_math.h: integer arithmetic for the CPU and the GPU: division that rounds up or down, and fast
// division by a divisor that is known before a kernel starts.
//
// All functions are forced inline, so *_simd.cpp files can use them (see framework/simd/simd.h).
#pragma once

#include <cstdint>

namespace convscope {

// Returns a / b rounded up, for a > -b and b > 0.
template <class A, class B>
[[gnu::always_inline]] constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// Returns a / b rounded down, for b > 0 and any a.
template <class A, class B>
[[gnu::always_inline]] constexpr auto floor_div(A a, B b) {
  return a >= 0 ? a / b : -ceil_div(-a, b);
}

// Returns the smallest multiple of b that is at least a.
template <class A, class B>
[[gnu::always_inline]] constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

// Computes n / d for 0 <= n < 2^31 and 1 <= d < 2^31 with one product. A GPU has no division
// instruction and needs about twenty instructions for a quotient.
//
// Let 2^(s-1) < d <= 2^s, and let m be 2^(31+s) / d, rounded up. m has 32 bits, because
// d > 2^(s-1). With 0 <= e < d <= 2^s, m d = 2^(31+s) + e, so
//   n m / 2^(31+s) = n / d + (n / d) e / 2^(31+s).
// The second summand is below (2^31 / d) 2^s / 2^(31+s) = 1 / d. The fractional part of n / d is at
// most 1 - 1 / d, so the sum stays below the next integer, and rounding down gives the quotient.
// 2 n fits 32 bits too, so a GPU computes (2 n) m / 2^32 with one instruction (the high half of a
// product). A shift by s follows.
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
