// SPDX-License-Identifier: Apache-2.0
// dtype_test.cpp: compares every fp16 and bf16 value with the definition of the format, computed in
// double.
#include "framework/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace convscope {
namespace {

// Returns the value of a float with sign, exponent field of `e` bits and fraction of `f` bits.
double value_of(std::uint32_t bits, int e, int f) {
  const int sign = (bits >> (e + f)) & 1;
  const int field = static_cast<int>((bits >> f) & ((1u << e) - 1));
  const auto fraction = static_cast<double>(bits & ((1u << f) - 1)) / static_cast<double>(1u << f);
  const int bias = (1 << (e - 1)) - 1;
  double magnitude = 0;
  if (field == (1 << e) - 1) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (field == 0) {
    magnitude = std::ldexp(fraction, 1 - bias);
  } else {
    magnitude = std::ldexp(1 + fraction, field - bias);
  }
  return sign != 0 ? -magnitude : magnitude;
}

template <class Half, int kE, int kF>
void check_all() {
  std::vector<double> values;  // of the positive finite ones, ascending
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto got = static_cast<double>(static_cast<float>(half));
    const double want = value_of(bits, kE, kF);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(Half(static_cast<float>(half))))) << bits;
      continue;
    }
    ASSERT_EQ(got, want) << bits;
    ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
    ASSERT_EQ(Half(static_cast<float>(half)).bits, bits) << "there and back";
    if (bits < 0x8000 && std::isfinite(want)) values.push_back(want);
  }
  // Rounding between two neighbours a < b: numbers below the midpoint round to a, numbers above it
  // to b, and the midpoint to the neighbour with even bits.
  for (std::uint32_t bits = 0; bits + 1 < values.size(); ++bits) {
    const double middle = (values[bits] + values[bits + 1]) / 2;
    const auto at = static_cast<float>(middle);
    if (static_cast<double>(at) != middle) continue;  // finer than a float
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(Half(at).bits, even) << middle;
    ASSERT_EQ(Half(-at).bits, even | 0x8000u) << middle;
    ASSERT_EQ(Half(std::nextafter(at, 0.0f)).bits, bits) << middle;
    ASSERT_EQ(Half(std::nextafter(at, INFINITY)).bits, bits + 1) << middle;
  }
  const auto infinity = static_cast<std::uint32_t>(values.size());
  EXPECT_EQ(Half(INFINITY).bits, infinity);
  EXPECT_EQ(Half(-INFINITY).bits, infinity | 0x8000u);
  // The number halfway between the largest value (odd bits) and the next step is a tie, which
  // rounds to infinity.
  const double step = values.back() - values[values.size() - 2];
  const auto edge = static_cast<float>(values.back() + step / 2);
  EXPECT_EQ(Half(edge).bits, infinity);
  EXPECT_EQ(Half(std::nextafter(edge, 0.0f)).bits, infinity - 1);
  EXPECT_EQ(Half(3.4e38f).bits, kF == 10 ? infinity : Half(3.4e38f).bits);
}

TEST(DType, Float16MatchesItsDefinition) { check_all<Float16, 5, 10>(); }

TEST(DType, BFloat16MatchesItsDefinition) { check_all<BFloat16, 8, 7>(); }

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::u8), "u8");
  EXPECT_EQ(size_of(DType::f64), 8u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_TRUE(is_floating(DType::bf16));
  EXPECT_FALSE(is_floating(DType::i32));
}

}  // namespace
}  // namespace convscope
