// SPDX-License-Identifier: Apache-2.0
// gemm_test.cpp: compares matrix products with sums in double, for each instruction set and number
// of threads.
#include "framework/ops/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"
#include "framework/simd/sum_chain.h"
#include "tests/support/tiers.h"

namespace convscope {
namespace {

using testing::Tier;

using Gemm = void (*)(bool, bool, std::int64_t, std::int64_t, std::int64_t, const float*,
                      std::int64_t, const float*, std::int64_t, float*, std::int64_t, bool);

struct GemmShape {
  std::int64_t m, n, k;
};

// The matrices start one element after the beginning of the allocation, and each row is followed by
// `gap` unused elements. So no row is aligned.
struct Case {
  GemmShape sizes;
  bool transpose_a, transpose_b, accumulate;
  Tier tier;
  std::int64_t gap = 3;
  std::int64_t lda, ldb, ldc;
  std::vector<float> a, b, c;

  Case(GemmShape s, bool ta, bool tb, bool acc, Tier numbers)
      : sizes(s),
        transpose_a(ta),
        transpose_b(tb),
        accumulate(acc),
        tier(numbers),
        lda((ta ? s.m : s.k) + gap),
        ldb((tb ? s.k : s.n) + gap),
        ldc(s.n + gap) {
    const auto stream = static_cast<std::uint64_t>(s.m * 31 + s.n * 17 + s.k);
    testing::TierNumbers a_numbers(tier, Generator(7, stream)),
        b_numbers(tier, Generator(8, stream)), c_numbers(tier, Generator(9, stream));
    a.resize(static_cast<std::size_t>((ta ? s.k : s.m) * lda) + 1);
    b.resize(static_cast<std::size_t>((tb ? s.n : s.k) * ldb) + 1);
    c.resize(static_cast<std::size_t>(s.m * ldc) + 1);
    for (float& v : a) v = a_numbers.next();
    for (float& v : b) v = b_numbers.next();
    for (float& v : c) v = acc ? c_numbers.next() : std::numeric_limits<float>::quiet_NaN();
  }

  std::vector<float> run(Gemm gemm_function) const {
    std::vector<float> out = c;
    gemm_function(transpose_a, transpose_b, sizes.m, sizes.n, sizes.k, a.data() + 1, lda,
                  b.data() + 1, ldb, out.data() + 1, ldc, accumulate);
    return out;
  }

  // One accumulator adds at most 160 products in sequence (framework/simd/sum_chain.h), so 8 eps
  // sum |a b| bounds the error of all sums here. The error can be larger only if all roundings have
  // the same direction. In a sum of up to 2^20 products, the loss of one average product exceeds
  // the bound.
  void check(const std::vector<float>& out, const char* what) const {
    for (std::int64_t i = 0; i < sizes.m; ++i) {
      for (std::int64_t j = 0; j < ldc; ++j) {
        const auto at = static_cast<std::size_t>(1 + i * ldc + j);
        if (j >= sizes.n) {  // the gap between rows must not change
          ASSERT_EQ(std::isnan(out[at]), std::isnan(c[at])) << what << " wrote into the gap";
          if (!std::isnan(c[at])) {
            ASSERT_EQ(out[at], c[at]) << what << " wrote into the gap";
          }
          continue;
        }
        double sum = accumulate ? static_cast<double>(c[at]) : 0.0;
        double size = std::abs(sum);
        for (std::int64_t k = 0; k < sizes.k; ++k) {
          const float x =
              a[static_cast<std::size_t>(1 + (transpose_a ? k * lda + i : i * lda + k))];
          const float y =
              b[static_cast<std::size_t>(1 + (transpose_b ? j * ldb + k : k * ldb + j))];
          sum += static_cast<double>(x) * static_cast<double>(y);
          size += std::abs(static_cast<double>(x) * static_cast<double>(y));
        }
        const double growth = testing::rounds_one_way(tier)
                                  ? worst_sum_growth(static_cast<double>(sizes.k), false)
                                  : kExpectedChainGrowth;
        const double bound = tier == Tier::exact ? 0.0 : growth * 0x1p-23 * size;
        ASSERT_LE(std::abs(static_cast<double>(out[at]) - sum), bound)
            << what << " m=" << sizes.m << " n=" << sizes.n << " k=" << sizes.k << " transpose "
            << transpose_a << transpose_b << " accumulate " << accumulate << " at [" << i << ","
            << j << "]: expected " << sum << ", got " << out[at];
      }
    }
  }
};

const GemmShape kSizes[] = {{1, 1, 1},    {1, 33, 5},     {13, 31, 7},    {14, 32, 16},
                            {15, 33, 17}, {29, 65, 64},   {64, 120, 256}, {6, 100, 25},
                            {3, 7, 800},  {97, 16, 400},  {5, 1500, 9},   {150, 64, 16},
                            {5, 2, 3},    {40, 1100, 30}, {7, 18, 11},    {15, 40, 4608}};

class GemmOnEachIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supports_isa(GetParam())) GTEST_SKIP() << "this CPU has no " << name_of(GetParam());
    before_ = current_isa();
    set_isa(GetParam());
  }
  void TearDown() override {
    if (supports_isa(GetParam())) set_isa(before_);
    set_num_threads(0);
  }
  Isa before_ = Isa::scalar;
};

TEST_P(GemmOnEachIsa, MatchesTheDoubleSumForEveryTranspose) {
  for (const GemmShape& sizes : kSizes) {
    for (int bits = 0; bits < 8 * static_cast<int>(std::size(testing::kAllTiers)); ++bits) {
      // Tests of how the operands are packed need only two kinds of numbers.
      if (bits >= 16 && bits % 8 != 7 && (bits >= 32 || bits % 8 != 0)) continue;
      const Case one(sizes, bits & 1, bits & 2, bits & 4, testing::kAllTiers[bits / 8]);
      one.check(one.run(gemm), "gemm");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(GemmOnEachIsa, GivesTheSameBitsOnOneAndTwoThreads) {
  for (const GemmShape& sizes : {GemmShape{64, 120, 256}, GemmShape{200, 300, 900}}) {
    const Case one(sizes, false, true, false, Tier::bounded);
    set_num_threads(1);
    const std::vector<float> first = one.run(gemm);
    set_num_threads(2);
    const std::vector<float> second = one.run(gemm);
    for (std::int64_t i = 0; i < sizes.m; ++i) {
      for (std::int64_t j = 0; j < sizes.n; ++j) {
        const auto at = static_cast<std::size_t>(1 + i * one.ldc + j);
        ASSERT_EQ(first[at], second[at]) << "at [" << i << "," << j << "]";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, GemmOnEachIsa,
                         ::testing::Values(Isa::scalar, Isa::vector4, Isa::avx2, Isa::avx512),
                         [](const auto& param_info) {
                           return std::string(name_of(param_info.param));
                         });

TEST(Gemm, BlocksThatDoNotFitOneRoundAreSummedUp) {
  const Case one({2100, 40, 500}, false, true, false, Tier::exact);  // two blocks of rows and of k
  one.check(one.run(gemm), "gemm");
  const Case wide({17, 2100, 400}, true, false, true, Tier::exact);  // two blocks of columns
  wide.check(wide.run(gemm), "gemm");
}

TEST(Gemm, EigenGivesTheSameProduct) {
  for (int bits = 0; bits < 32; ++bits) {
    const Case one({15, 33, 17}, bits & 1, bits & 2, bits & 4, testing::kAllTiers[bits / 8]);
    one.check(one.run(gemm_eigen), "gemm_eigen");
  }
}

TEST(Gemm, WithoutProductsGivesZerosOrLeavesTheSumAlone) {
  float c[2] = {5.0f, 6.0f};
  gemm(false, false, 1, 2, 0, static_cast<const float*>(nullptr), 1, nullptr, 2, c, 2, true);
  EXPECT_EQ(c[0], 5.0f);
  gemm(false, false, 1, 2, 0, static_cast<const float*>(nullptr), 1, nullptr, 2, c, 2, false);
  EXPECT_EQ(c[0], 0.0f);
  EXPECT_EQ(c[1], 0.0f);
  gemm(false, false, 0, 2, 3, static_cast<const float*>(nullptr), 3, nullptr, 2, c, 2, false);
}

TEST(Gemm, DoubleAgreesWithAHandExample) {
  const double a[] = {1, 2, 3, 4};  // [2,2]
  const double b[] = {5, 6, 7, 8};
  double c[4];
  gemm(false, false, 2, 2, 2, a, 2, b, 2, c, 2, false);
  EXPECT_EQ(c[0], 19);
  EXPECT_EQ(c[3], 50);
  gemm(true, true, 2, 2, 2, a, 2, b, 2, c, 2, true);  // A^T B^T = [[23,31],[34,46]]
  EXPECT_EQ(c[0], 42);
  EXPECT_EQ(c[3], 96);
}

}  // namespace
}  // namespace convscope
