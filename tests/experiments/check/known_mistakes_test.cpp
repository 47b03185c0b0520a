// SPDX-License-Identifier: Apache-2.0
// known_mistakes_test.cpp: puts known mistakes into the textbook loops, one at a time. Tests that
// `check` diagnoses each mistake in every direction that it affects.
#include <gtest/gtest.h>

#include <cstring>

#include "experiments/check/diagnosis.h"
#include "experiments/check/wrong_loops.h"
#include "experiments/check/wrong_positions.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using matrix::ConvolutionCase;
using matrix::Tier;

// The planted mistake, which the algorithm's functions read from here.
const KnownMistake* planted = nullptr;

void write(const Conv2dProblem& z, Direction direction, bool extra, void* out) {
  const ConvolutionCase numbers(z, Tier::exact);  // the numbers that the arguments point to
  Loops loops(z);
  if (planted != nullptr) planted->plant(loops);
  const std::vector<double> sums = sums_of(loops, numbers, direction, extra);
  std::vector<float> rounded(sums.begin(), sums.end());
  std::memcpy(out, rounded.data(), rounded.size() * sizeof(float));
}

Conv2dAlgorithm wrong_algorithm() {
  return {.name = "wrong",
          .supports = [](const Conv2dProblem&, Direction) { return Conv2dSupport{}; },
          .workspace_bytes = [](const Conv2dProblem&, Direction) { return std::size_t{0}; },
          .exact_on_integers = true,
          .forward =
              [](const Conv2dForwardArgs& args) {
                write(args.problem, Direction::forward, args.b != nullptr, args.y);
              },
          .backward_data =
              [](const Conv2dBackwardDataArgs& args) {
                write(args.problem, Direction::backward_data, false, args.dx);
              },
          .backward_weight =
              [](const Conv2dBackwardWeightArgs& args) {
                write(args.problem, Direction::backward_weight, args.accumulate, args.dw);
              }};
}

// One problem that shows nearly every mistake.
constexpr const char* kAll =
    "n=3,c=4,h=8,w=9,k=6,r=3,s=2,stride=2x1,dilation=1x2,pad=1x0x2x1,groups=2";

class Mistakes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Mistakes, AreFoundInWhatTheyDo) {
  const KnownMistake& mistake = known_mistakes()[GetParam()];
  const Conv2dAlgorithm algorithm = wrong_algorithm();
  const testing::MachineScope scope;
  set_num_threads(1);
  int seen = 0;
  for (const Direction direction : kDirections) {
    for (const char* const text : {kAll, "n=2,c=29,h=2,w=29,k=31,r=1,s=3,pad=0x1",
                                   "n=1,c=2,h=9,w=9,k=2,r=3,s=3,stride=1x2,dilation=2x1,pad=1"}) {
      planted = &mistake;
      ConvolutionCase one(Conv2dProblem::parse(text), Tier::exact);
      if (one.check(algorithm, direction).empty()) continue;
      ++seen;
      const std::string said = diagnosis_of(algorithm, one.fault());
      // If two mistakes have the same effect on all problems, the diagnosis names the first of them
      // in the list.
      const bool for_dw =
          direction == Direction::backward_weight && mistake.agrees_of_dw != nullptr;
      EXPECT_NE(said.find(for_dw ? mistake.agrees_of_dw : mistake.agrees), std::string::npos)
          << name_of(direction) << " of " << text << ": " << said;
    }
  }
  planted = nullptr;
  EXPECT_GT(seen, 0) << mistake.agrees;
}

INSTANTIATE_TEST_SUITE_P(Known, Mistakes,
                         ::testing::Range<std::size_t>(0, known_mistakes().size()));

TEST(KnownMistakes, LoopsWithoutOneAreRight) {
  planted = nullptr;
  const Conv2dAlgorithm algorithm = wrong_algorithm();
  ConvolutionCase one(Conv2dProblem::parse(kAll), Tier::exact);
  for (const Direction direction : kDirections) EXPECT_EQ(one.check(algorithm, direction), "");
}

TEST(WrongPlaces, SayWhatTheElementsHaveInCommon) {
  const Conv2dProblem z = Conv2dProblem::parse("n=2,c=3,h=5,w=6,k=4,r=3,s=3,pad=1");
  const auto text = [&](const auto& is_wrong) {
    std::vector<bool> wrong;
    for (std::int64_t i = 0; i < z.y_shape().numel(); ++i) {
      wrong.push_back(is_wrong(i / 120, i / 30 % 4, i / 6 % 5, i % 6));
    }
    return positions_text(z, Direction::forward, wrong);
  };
  EXPECT_EQ(text([](auto...) { return true; }), "all 240 elements");
  EXPECT_EQ(text([](auto, auto, auto, auto q) { return q == 5; }),
            "40 of 240 elements, all with q = 5 (the last)");
  EXPECT_EQ(text([](auto, auto k, auto, auto) { return k >= 2; }),
            "120 of 240 elements, all with k >= 2 of 4");
  EXPECT_EQ(text([](auto n, auto, auto p, auto) { return n == 1 && p == 0; }),
            "24 of 240 elements, all with n = 1 (the last) and p = 0 (the first)");
  EXPECT_EQ(text([](auto, auto, auto p, auto q) { return p % 4 == 0 || q % 5 == 0; }),
            "144 of 240 elements, just those where the kernel reaches into the padding");
  EXPECT_EQ(text([](auto, auto, auto, auto q) { return q % 2 == 1; }),
            "120 of 240 elements, all with odd q");
  EXPECT_EQ(place_text(z, Direction::forward, 125), "[n,k,p,q] = [1,0,0,5]");
  EXPECT_EQ(place_text(z, Direction::backward_weight, 10), "[k,c,r,s] = [0,1,0,1]");
}

}  // namespace
}  // namespace convscope
