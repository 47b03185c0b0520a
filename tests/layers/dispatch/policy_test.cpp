// SPDX-License-Identifier: Apache-2.0
// policy_test.cpp: tests the meaning of a policy's text, and which algorithm a list of names
// selects.
#include <gtest/gtest.h>

#include "layers/dispatch/choice_cache.h"
#include "layers/dispatch/operator_use.h"
#include "layers/dispatch/policy_text.h"
#include "tests/layers/dispatch/correlation1d.h"
#include "tests/support/cache_folder.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

const Device kCpu;
const Correlation1dProblem kProblem{.n = 2, .c = 4, .length = 19, .k = 8, .taps = 3};
using Words = std::vector<std::string>;

TEST(PolicyText, IsAWordAListOrACheck) {
  EXPECT_EQ(parse_policy("op", "auto").words, Words{"auto"});
  EXPECT_FALSE(parse_policy("op", "auto").is_list());
  const PolicyText list = parse_policy("op", " a , b,auto");
  EXPECT_EQ(list.words, (Words{"a", "b", "auto"}));
  EXPECT_TRUE(list.is_list());
  EXPECT_EQ(list.text(), "a,b,auto");
  EXPECT_EQ(parse_policy("op", "winograd_f4x3_halves,auto").words.at(0), "winograd_f4x3_fp16x3");
  const PolicyText check = parse_policy("op", "check:a, b");
  EXPECT_EQ(check.words, (Words{"a", "b"}));
  EXPECT_TRUE(check.is_check);
  EXPECT_FALSE(check.is_list());
  EXPECT_EQ(check.text(), "check:a,b");
}

TEST(PolicyText, RefusesListsThatCannotBeMeant) {
  const auto parse = [](const std::string& text) { return parse_policy("op", text); };
  EXPECT_ERROR(ErrorKind::kInvalid, "a word at each place of the list", parse("a,,b"));
  EXPECT_ERROR(ErrorKind::kInvalid, "a word at each place of the list", parse("a,"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected 'auto' at the end of the list", parse("auto,a"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected 'measure' at the end", parse("a,measure,auto"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected check:<a>,<b> as the only entry",
               parse("a,check:b,c"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected different words", parse("a,b,a"));
  EXPECT_ERROR(ErrorKind::kInvalid, "two algorithms like 'check:", parse("check:a"));
  EXPECT_ERROR(ErrorKind::kInvalid, "two algorithms like 'check:", parse("check:a,b,c"));
  EXPECT_ERROR(ErrorKind::kInvalid, "two algorithms like 'check:", parse("check:a,"));
}

class PolicyList : public ::testing::Test {
 protected:
  void SetUp() override { register_correlation(); }

  static Choice<Correlation1dProblem> choice(const std::string& policy, Direction direction) {
    return select_algorithm(policy, kProblem, direction, kCpu);
  }
};

// `sliding` computes no gradient of the weights.
TEST_F(PolicyList, TakesTheFirstThatAccepts) {
  const auto forward = choice("sliding,reference", Direction::forward);
  EXPECT_STREQ(forward.algorithm->name, "sliding");
  EXPECT_EQ(forward.word, "sliding");
  const auto dw = choice("sliding,reference", Direction::backward_weight);
  EXPECT_STREQ(dw.algorithm->name, "reference");
  EXPECT_EQ(dw.word, "reference");
  EXPECT_EQ(dw.checked_by, nullptr);
  const auto open = choice("sliding,auto", Direction::backward_weight);
  EXPECT_STREQ(open.algorithm->name, "reference");
  EXPECT_EQ(open.word, "auto");
  EXPECT_EQ(choice("auto", Direction::forward).word, "auto");
}

TEST_F(PolicyList, MayEndWithMeasure) {
  const CacheFolder folder;
  const auto timed = choice("sliding,measure", Direction::backward_weight);
  EXPECT_EQ(timed.word, "measure");
  EXPECT_STREQ(timed.algorithm->name, "reference");
}

TEST_F(PolicyList, SaysWhichWordsWerePassedOver) {
  const Question dw = question_of(kProblem, Direction::backward_weight, kCpu);
  const Decision decision = decide("sliding,auto", dw);
  EXPECT_EQ(decision.error, "");
  EXPECT_EQ(decision.word, "auto");
  ASSERT_EQ(decision.refusals.size(), 1u);
  EXPECT_EQ(decision.refusals[0].word, "sliding");
  EXPECT_EQ(decision.refusals[0].reason, "does not compute backward_weight");
  const std::vector<Verdict> verdicts = ordered_verdicts(dw, decision);
  EXPECT_EQ(verdicts[0].algorithm, "reference");
  EXPECT_TRUE(verdicts[0].chosen);
  EXPECT_FALSE(verdicts[0].refused);
  EXPECT_TRUE(verdicts[1].refused);
}

TEST_F(PolicyList, AnExhaustedListNamesEveryRefusal) {
  Correlation1dProblem problem = kProblem;
  problem.dtype = DType::f16;
  // Neither algorithm supports it.
  const Question question = question_of(problem, Direction::backward_weight, kCpu);
  const Decision decision = decide("sliding,reference", question);
  EXPECT_EQ(decision.refusals.size(), 2u) << decision.error;
  EXPECT_EQ(decision.names.first, "");
  EXPECT_ERROR(ErrorKind::kUnavailable,
               "'sliding' does not compute backward_weight and 'reference'",
               chosen_names("sliding,reference", question));
  EXPECT_ERROR(ErrorKind::kUnavailable, "'auto' found none among those that it may choose",
               chosen_names("sliding,auto", question));
  EXPECT_ERROR(ErrorKind::kUnavailable, "no algorithm here accepts it",
               chosen_names("sliding,reference", question));
}

TEST_F(PolicyList, EveryWordIsLookedUp) {
  const Words known = {"reference", "sliding"};
  check_policy("correlation1d", "sliding,reference,auto", kCpu, known);
  EXPECT_ERROR(ErrorKind::kUnavailable, "got 'refrence'; did you mean 'reference'?",
               check_policy("correlation1d", "sliding,refrence", kCpu, known));
  // An unknown name is an error after an accepted one, too.
  EXPECT_ERROR(ErrorKind::kUnavailable, "did you mean 'reference'?",
               choice("sliding,refrence", Direction::forward));
}

TEST_F(PolicyList, ErrorsNameTheLayerAndWhatToWrite) {
  const AlgorithmPolicy policy{.backward_weight = "sliding"};
  const auto cache = make_ref<ChoiceCache<Correlation1dProblem>>(policy, "c1");
  const std::string sentence =
      "[correlation1d] layer c1: expected an algorithm that can compute backward_weight of ";
  EXPECT_ERROR(ErrorKind::kUnavailable, sentence,
               cache->get(kProblem, Direction::backward_weight, kCpu, WeightUse::once));
  EXPECT_ERROR(ErrorKind::kUnavailable, "; 'sliding,auto' takes one of them",
               cache->get(kProblem, Direction::backward_weight, kCpu, WeightUse::once));
  const auto use = operator_use_of(kProblem, policy, "c1");
  EXPECT_ERROR(ErrorKind::kUnavailable, sentence,
               use->choose(Direction::backward_weight, kCpu, WeightUse::once));
  const Decision decision = use->decision(Direction::backward_weight, kCpu);
  EXPECT_EQ(decision.error.substr(0, 10), "layer c1: ");
  EXPECT_EQ(use->explain(Direction::backward_weight, kCpu).size(), 2u);
}

TEST_F(PolicyList, ACheckRefusesWhenOneOfItsTwoDoes) {
  const Question dw = question_of(kProblem, Direction::backward_weight, kCpu);
  EXPECT_ERROR(ErrorKind::kUnavailable, "but 'sliding' does not compute backward_weight",
               chosen_names("check:reference,sliding", dw));
  const Question forward = question_of(kProblem, Direction::forward, kCpu);
  const Decision both = decide("check:sliding,reference", forward);
  EXPECT_EQ(both.word, "check:sliding,reference");
  const std::vector<Verdict> verdicts = ordered_verdicts(forward, both);
  EXPECT_TRUE(verdicts[0].chosen && !verdicts[0].checks);
  EXPECT_TRUE(verdicts[1].checks && !verdicts[1].chosen);
}

}  // namespace
}  // namespace convscope::testing
