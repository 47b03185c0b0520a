// SPDX-License-Identifier: Apache-2.0
// random_test.cpp: Philox and the numbers made from it.
#include "framework/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace convscope {
namespace {

// The expected words after ten rounds are test vectors of the Random123 library (kat_vectors).
TEST(Random, PhiloxGivesTheKnownAnswers) {
  struct Answer {
    Philox4 counter;
    std::uint64_t key;
    Philox4 want;
  };
  const Answer answers[] = {
      {{{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{~0u, ~0u, ~0u, ~0u}}, ~0ull, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       0x299f31d0a4093822ull,
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}}};
  for (const Answer& answer : answers) {
    const Philox4 got = philox4x32(answer.counter, answer.key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.x[i], answer.want.x[i]) << i;
  }
}

TEST(Random, StreamsAndSeedsAreIndependentAndIndexed) {
  Generator a(7, 3);
  for (std::uint64_t block = 0; block < 5; ++block) {
    const Philox4 words = random_block(7, 3, block);
    for (std::uint32_t word : words.x) EXPECT_EQ(a.next_bits(), word);
  }
  EXPECT_NE(Generator(7, 3).next_bits(), Generator(7, 4).next_bits());
  EXPECT_NE(Generator(7, 3).next_bits(), Generator(8, 3).next_bits());
}

TEST(Random, UniformNumbersFillTheirInterval) {
  EXPECT_EQ(uniform_from_bits(0), 0.0f);
  EXPECT_LT(uniform_from_bits(~0u), 1.0f);
  EXPECT_EQ(uniform_from_bits(~0u), 1.0f - 0x1p-24f);
  Generator random(1);
  constexpr int kCount = 1 << 18;
  std::array<int, 64> bins{};
  for (int i = 0; i < kCount; ++i) ++bins[static_cast<std::size_t>(random.uniform() * 64)];
  double chi = 0;
  const double expected = kCount / 64.0;
  for (int n : bins) chi += (n - expected) * (n - expected) / expected;
  EXPECT_LT(chi, 120);  // 63 degrees of freedom: 1 in 10^5
  for (int i = 0; i < 1000; ++i) {
    const float x = random.uniform(-2, 3);
    EXPECT_GE(x, -2);
    EXPECT_LE(x, 3);
  }
}

TEST(Random, NormalNumbersHaveTheRightMoments) {
  Generator random(2);
  constexpr int kCount = 1 << 20;
  double sum[5] = {};
  int tail = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto x = static_cast<double>(random.normal());
    double power = 1;
    for (double& s : sum) {
      s += power;
      power *= x;
    }
    tail += std::abs(x) > 3 ? 1 : 0;
  }
  // For 2^20 draws the standard errors of the four moments are sqrt(1), sqrt(2), sqrt(15) and
  // sqrt(96), divided by 1024. The bound is five standard errors.
  EXPECT_NEAR(sum[1] / kCount, 0, 5 * 1.0 / 1024);
  EXPECT_NEAR(sum[2] / kCount, 1, 5 * 1.42 / 1024);
  EXPECT_NEAR(sum[3] / kCount, 0, 5 * 3.88 / 1024);
  EXPECT_NEAR(sum[4] / kCount, 3, 5 * 9.8 / 1024);
  EXPECT_NEAR(tail / static_cast<double>(kCount), 0.0026998, 5 * 0.052 / 1024);
}

TEST(Random, NormalNumbersMatchBoxAndMullerInDouble) {
  Generator random(3);
  for (int i = 0; i < 20000; ++i) {
    const std::uint32_t a = random.next_bits(), b = random.next_bits();
    const double u = static_cast<double>(uniform_from_bits(a)) + 0x1p-25;
    const double v = static_cast<double>(uniform_from_bits(b));
    const double radius = std::sqrt(-2 * std::log(u));
    const NormalPair pair = normal_from_bits(a, b);
    // u is rounded to float. For u near 1 this rounding changes -log(u), and the square root
    // amplifies the change.
    const double slack = 4e-6 + 6e-8 / std::max(radius, 1e-3);
    EXPECT_NEAR(pair.a, radius * std::cos(2 * M_PI * v), slack);
    EXPECT_NEAR(pair.b, radius * std::sin(2 * M_PI * v), slack);
  }
  EXPECT_TRUE(std::isfinite(normal_from_bits(0, 0).a));
  EXPECT_TRUE(std::isfinite(normal_from_bits(~0u, ~0u).a));
}

TEST(Random, BelowIsUnbiased) {
  // The bound is 3/4 of 2^32. If random words were only scaled to the bound, every third number
  // would occur twice as often.
  Generator random(4);
  constexpr std::uint32_t kBound = 3u << 30;
  int multiples = 0;
  constexpr int kCount = 1 << 16;
  for (int i = 0; i < kCount; ++i) {
    const std::uint32_t x = random.below(kBound);
    ASSERT_LT(x, kBound);
    multiples += x % 3 == 0 ? 1 : 0;
  }
  EXPECT_NEAR(multiples / static_cast<double>(kCount), 1.0 / 3, 5 * 0.4715 / 256);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7)];
  for (int n : counts) EXPECT_NEAR(n, 10000, 5 * 93);
  EXPECT_EQ(random.below(1), 0u);
}

}  // namespace
}  // namespace convscope
