// SPDX-License-Identifier: Apache-2.0
// check_results_test.cpp: what check:a,b records of its comparisons.
#include "layers/dispatch/check_results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layers/dispatch/choice_cache.h"
#include "tests/layers/dispatch/correlation1d.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

const Device kCpu;
const Correlation1dProblem kProblem{.n = 2, .c = 4, .length = 19, .k = 8, .taps = 3};
float added = 0;  // to one element of what `shifted_algorithm` computes

CorrelationAlgorithm shifted_algorithm(double error_growth) {
  CorrelationAlgorithm algorithm = sliding_algorithm();
  algorithm.name = "shifted";
  algorithm.error_growth = error_growth;
  algorithm.forward = [](const CorrelationForwardArgs& args) {
    sliding_forward(args);
    static_cast<float*>(args.y)[7] += added;
  };
  return algorithm;
}

class CheckResults : public ::testing::Test {
 protected:
  void SetUp() override {
    register_correlation();
    forget_check_results();
  }
  void TearDown() override { forget_check_results(); }

  static void run(const Choice<Correlation1dProblem>& choice) {
    execute(choice, kProblem, Direction::forward,
            random_operands(kProblem.operands(Direction::forward), kCpu));
  }
};

// Two neighbouring f32 numbers look different.
TEST_F(CheckResults, ShowBothNumbersWithDigitsThatTellThemApart) {
  const float one = 2471.7295f, next = std::nextafter(one, 3000.0f);
  Operands first, second;
  first.out[0].values = Tensor::full({3}, one);
  second.out[0].values = Tensor::full({3}, next);
  EXPECT_ERROR(ErrorKind::kRun, "got 2471.72949 and 2471.72974 at element 0",
               compare_outputs({.operation = "test",
                                .layer = "",
                                .first_name = "a",
                                .second_name = "b",
                                .direction = Direction::forward,
                                .problem = "p",
                                .relative_bound = 1e-9},
                               first, second, first));
}

TEST_F(CheckResults, CountTheCallsAndKeepTheWorst) {
  const CorrelationAlgorithm shifted = shifted_algorithm(1e6);
  const CorrelationAlgorithm plain = sliding_algorithm();
  const Choice<Correlation1dProblem> choice{&plain, &shifted, "check:sliding,shifted", "c1"};
  for (const float by : {0.125f, 0.25f, 0.0f}) {
    added = by;
    run(choice);
  }
  const std::vector<CheckResult> results = check_results();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].layer, "c1");
  EXPECT_EQ(results[0].first, "sliding");
  EXPECT_EQ(results[0].second, "shifted");
  EXPECT_EQ(results[0].calls, 3);
  EXPECT_NEAR(results[0].worst.difference, 0.25, 1e-5);  // rounded when 0.25 was added
  EXPECT_GT(results[0].worst.value, 1);
  EXPECT_GT(results[0].worst.bound, 0.25);
}

TEST_F(CheckResults, ANanInOneResultAloneIsADifference) {
  const CorrelationAlgorithm shifted = shifted_algorithm(1e6);
  const CorrelationAlgorithm plain = sliding_algorithm();
  added = std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(ErrorKind::kRun, "expected 'sliding' and 'shifted' to agree",
               run({&plain, &shifted, "check:sliding,shifted", "c1"}));
  run({&shifted, &shifted, "check:shifted,shifted", "c1"});  // in both: no difference
  added = 0;
}

TEST_F(CheckResults, StandApartForEachLayerAndDirection) {
  const AlgorithmPolicy policy{.forward = "check:sliding,reference",
                               .backward_data = "check:reference,reference"};
  for (const char* layer : {"c1", "c2"}) {
    const auto cache = make_ref<ChoiceCache<Correlation1dProblem>>(policy, layer);
    for (const Direction direction : {Direction::forward, Direction::backward_data}) {
      execute(cache->get(kProblem, direction, kCpu, WeightUse::once), kProblem, direction,
              random_operands(kProblem.operands(direction), kCpu));
    }
  }
  ASSERT_EQ(check_results().size(), 4u);
  const std::string text = check_results()[1].text();
  EXPECT_TRUE(text.starts_with("c1 backward_data: reference against reference, ")) << text;
  EXPECT_EQ(check_results()[2].layer, "c2");
  for (const CheckResult& one : check_results()) {
    EXPECT_LE(one.worst.difference, one.worst.bound);
    EXPECT_GE(one.worst.difference, 0);
  }
  forget_check_results();
  EXPECT_TRUE(check_results().empty());
}

TEST_F(CheckResults, NothingIsNotedWithoutACheck) {
  run(select_algorithm("sliding", kProblem, Direction::forward, kCpu));
  EXPECT_TRUE(check_results().empty());
}

TEST_F(CheckResults, ADisagreementNamesTheLayer) {
  const CorrelationAlgorithm shifted = shifted_algorithm(1);
  const CorrelationAlgorithm plain = sliding_algorithm();
  added = 0.5f;
  EXPECT_ERROR(ErrorKind::kRun,
               "[correlation1d] layer c1: expected 'sliding' and 'shifted' to agree within",
               run({&plain, &shifted, "check:sliding,shifted", "c1"}));
}

TEST_F(CheckResults, AreOneLine) {
  CheckResult result{.layer = "c1",
                     .direction = Direction::forward,
                     .first = "winograd_f4x3",
                     .second = "direct",
                     .calls = 469,
                     .worst = {.difference = 3.1e-6, .value = 1.2, .bound = 2e-5}};
  EXPECT_EQ(result.text(),
            "c1 forward: winograd_f4x3 against direct, largest difference 3.1e-06 of 1.2 (bound "
            "2e-05), 469 calls");
  result.layer = "";
  result.calls = 1;
  EXPECT_EQ(result.text(),
            "forward: winograd_f4x3 against direct, largest difference 3.1e-06 of 1.2 (bound "
            "2e-05), 1 call");
}

}  // namespace
}  // namespace convscope::testing
