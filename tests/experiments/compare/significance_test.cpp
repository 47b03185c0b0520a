// SPDX-License-Identifier: Apache-2.0
// significance_test.cpp: tests the statistics of `convscope compare`. The expected values were
// computed with 30 digits (mpmath), or by enumerating all orders of the samples.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "experiments/compare/rank_test.h"
#include "experiments/compare/student_t.h"
#include "framework/check.h"

namespace convscope {
namespace {

void expect_close(double got, double wanted) {
  EXPECT_NEAR(got, wanted, 1e-12 * std::abs(wanted)) << "wanted " << wanted;
}

TEST(IncompleteBeta, has_the_known_values_on_both_sides_of_its_turn) {
  expect_close(incomplete_beta(2, 3, 0.4), 0.5248);
  expect_close(incomplete_beta(0.5, 0.5, 0.3), 0.369010119565545375);
  expect_close(incomplete_beta(50, 0.5, 0.98), 0.156243507866817926);
  expect_close(incomplete_beta(0.1, 30, 0.01), 0.907664668689370727);
  expect_close(incomplete_beta(500, 0.5, 0.999), 0.317310447309717155);
  EXPECT_EQ(incomplete_beta(2, 3, 0), 0);
  EXPECT_EQ(incomplete_beta(2, 3, 1), 1);
  EXPECT_THROW(incomplete_beta(0, 1, 0.5), Error);
  EXPECT_THROW(incomplete_beta(1, 1, std::nan("")), Error);
}

TEST(StudentT, has_the_known_tails) {
  expect_close(student_two_sided_p(1, 1), 0.5);  // Cauchy's distribution has a quarter on each side
  expect_close(student_two_sided_p(2.5, 3.7), 0.0718220229118267728);
  expect_close(student_two_sided_p(-2.5, 3.7), 0.0718220229118267728);
  expect_close(student_two_sided_p(0.1, 10), 0.922320718564408315);
  expect_close(student_two_sided_p(12, 4), 2.76428548502972955e-4);
  expect_close(student_two_sided_p(3, 200), 3.04304711390590280e-3);
  EXPECT_NEAR(student_two_sided_p(1.96, 1e6), 0.0499960675852697857, 1e-10);
  EXPECT_EQ(student_two_sided_p(0, 5), 1);
  EXPECT_EQ(student_two_sided_p(std::numeric_limits<double>::infinity(), 5), 0);
}

TEST(StudentT, has_the_critical_values_of_the_tables) {
  expect_close(student_critical_t(0.05, 1), 12.7062047361747047);
  expect_close(student_critical_t(0.05, 2), 4.30265272974946385);
  expect_close(student_critical_t(0.05, 10), 2.22813885198627475);
  expect_close(student_critical_t(0.05, 30), 2.04227245630123831);
}

TEST(Welch, compares_two_means_of_different_variance) {
  const WelchTest test = welch_test(mean_std({27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9,
                                              22.6, 23.1, 19.6, 19.0, 21.7, 21.4}),
                                    mean_std({27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8,
                                              20.2, 21.9, 22.1, 22.9, 30.5, 25.9}));
  EXPECT_NEAR(test.t, 2.92318015506596372, 1e-10);
  EXPECT_NEAR(test.degrees, 27.9512994884411400, 1e-9);
  EXPECT_NEAR(test.p, 0.00679370440634335324, 1e-12);
  EXPECT_NEAR(test.low, 0.877650031016031651, 1e-9);
  EXPECT_NEAR(test.high, 4.98901663565063455, 1e-9);
  const WelchTest small = welch_test(mean_std({98.1, 98.3, 98.2}), mean_std({98.6, 98.5, 98.9}));
  EXPECT_NEAR(small.p, 0.0421715675734385119, 1e-9);
  EXPECT_NEAR(small.low, 0.0318370098584270424, 1e-9);
  // t = 12.5 / sqrt(5/12 + 25) for two samples, one of 4 values with variance 5/3 and one of 2
  // values with variance 50.
  const WelchTest uneven = welch_test(mean_std({1, 2, 3, 4}), mean_std({10, 20}));
  EXPECT_NEAR(uneven.t, 2.4794235184023234, 1e-12);
  EXPECT_NEAR(uneven.degrees, 1.0335154152393298, 1e-12);
}

TEST(Welch, refuses_what_says_nothing_about_noise) {
  EXPECT_THROW(welch_test(mean_std({1}), mean_std({1, 2})), Error);
  EXPECT_THROW(welch_test(mean_std({1, 1}), mean_std({2, 2})), Error);
}

// If two samples have the same distribution, a right test finds p < 0.05 in five of a hundred
// trials.
TEST(Welch, errs_as_often_as_it_says) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(50, 2);
  int found = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> a(5), b(8);
    for (double& value : a) value = normal(random);
    for (double& value : b) value = normal(random);
    found += welch_test(mean_std(a), mean_std(b)).p < 0.05 ? 1 : 0;
  }
  // 200 expected, deviation 14.
  EXPECT_NEAR(found, 200, 56);
}

TEST(RankTest, counts_orders_where_no_values_are_equal) {
  expect_close(rank_test({1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}).p, 2.0 / 252);
  expect_close(rank_test({6, 7, 8, 9, 10}, {1, 2, 3, 4, 5}).p, 2.0 / 252);
  expect_close(rank_test({1, 2, 3, 4}, {2.5, 5, 6, 7}).p, 8.0 / 70);
  expect_close(rank_test({1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30},
                         {0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.07, 3.14, 1.28})
                   .p,
               0.13591114767585355);
}

TEST(RankTest, finds_nothing_in_equal_values) {
  EXPECT_EQ(rank_test({2, 2, 2, 2}, {2, 2, 2, 2}).p, 1);
  // The two samples have 20 pairs and U = 5.5. Ties of 3 and of 2 values reduce the variance to 20
  // / 12 (10 - 30 / 72). With the continuity correction, U differs from its mean by 4.
  EXPECT_NEAR(rank_test({1, 2, 3, 3}, {1, 0.5, 3, 2.5, 0.25}).p,
              std::erfc(4.0 / std::sqrt(2 * 20.0 / 12 * (10 - 30.0 / 72))), 1e-12);
}

TEST(RankTest, its_interval_holds_the_factor_between_the_sides) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, 0.05);
  std::vector<double> a(20), b(20);
  for (double& value : a) value = 4 * std::exp(normal(random));
  for (double& value : b) value = 5 * std::exp(normal(random));
  const RankTest test = rank_test(a, b);
  EXPECT_LT(test.p, 1e-6);
  EXPECT_GT(test.ratio_low, 1.15);
  EXPECT_LT(test.ratio_low, 1.25);
  EXPECT_GT(test.ratio_high, 1.25);
  EXPECT_LT(test.ratio_high, 1.36);
  // With 3 and 3 values no interval reaches 95 %.
  EXPECT_EQ(rank_test({1, 2, 3}, {4, 5, 6}).ratio_low, 0);
  // For 5 and 5 values, P(U <= 2) = 4/252 < 2.5 % < P(U <= 3). The interval therefore ends at the
  // third ratio from either end.
  EXPECT_EQ(rank_test({1, 10, 100, 1000, 10000}, {1, 10, 100, 1000, 10000}).ratio_low, 1e-3);
}

TEST(RankTest, errs_no_more_often_than_it_says) {
  std::mt19937 random(11);
  std::exponential_distribution<double> skewed(1);
  int found = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> a(10), b(12);
    for (double& value : a) value = skewed(random);
    for (double& value : b) value = skewed(random);
    found += rank_test(a, b).p < 0.05 ? 1 : 0;
  }
  EXPECT_LT(found, 200 + 56);
  EXPECT_GT(found, 100);
}

TEST(Holm, corrects_step_by_step_and_leaves_out_what_is_no_test) {
  const std::vector<double> p = holm({0.01, 0.04, 0.03, std::nan(""), 0.005});
  expect_close(p[4], 0.02);
  expect_close(p[0], 0.03);
  expect_close(p[2], 0.06);
  expect_close(p[1], 0.06);  // at least that of a smaller p
  EXPECT_TRUE(std::isnan(p[3]));
  EXPECT_EQ(holm({0.9, 0.8}), (std::vector<double>{1, 1}));
  EXPECT_TRUE(holm({}).empty());
}

}  // namespace
}  // namespace convscope
