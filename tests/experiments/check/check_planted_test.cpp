// SPDX-License-Identifier: Apache-2.0
// check_planted_test.cpp: tests `convscope check` on a plug-in in which each algorithm has one
// deliberate mistake. The command must report the mistake in a fitting sentence.
#include <gtest/gtest.h>

#include "tests/experiments/plugins/plugin_paths.h"
#include "tests/support/call_program.h"

namespace convscope::testing {
namespace {

Called check(const std::string& words) {
  return call_program("check conv2d " + words + " --plugin '" + kPlanted + "'");
}

struct Planted {
  const char* algorithm;
  const char* cause;
  const char* first;  // part of the line that says where
};

class PlantedMistake : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedMistake, IsNamed) {
  const Called called = check(std::string(GetParam().algorithm) + " --quick");
  EXPECT_EQ(called.code, 1) << called.err;
  const std::string begin = std::string("wrong  ") + GetParam().algorithm + ": ";
  ASSERT_EQ(called.out.substr(0, begin.size()), begin) << called.out << called.err;
  const std::string line = called.out.substr(0, called.out.find('\n'));
  EXPECT_NE(line.find(GetParam().cause), std::string::npos) << called.out;
  EXPECT_NE(called.out.find(GetParam().first), std::string::npos) << called.out;
  const std::string page = text_of(CONVSCOPE_SOURCE_DIR "/experiments/check/README.md");
  const std::string said = GetParam().cause;
  EXPECT_NE(page.find(said), std::string::npos) << "the page does not say: " << said;
}

INSTANTIATE_TEST_SUITE_P(
    Check, PlantedMistake,
    ::testing::Values(
        Planted{"wrong_border", "the test for the border is off by one: h = 0 is inside the image",
                "first  forward of "},
        Planted{"wrong_next_row", "the test for the border is off by one: column W is outside",
                "first  forward of "},
        Planted{"wrong_dilation",
                "y agrees with a convolution whose dilation is 1: the dilation seems to be ignored",
                ",dilation="},
        Planted{"wrong_groups", "the groups seem to be ignored", ",groups="},
        Planted{"wrong_flipped", "a convolution does not flip w", "first  forward of "},
        Planted{"wrong_bias", "y agrees with a convolution without its bias", ", with a bias"},
        Planted{"wrong_unwritten",
                "y keeps the old contents of memory: 192 of 1728 elements, all with p = 8 (the "
                "last) are never written",
                "y[n,k,p,q] = [0,0,8,0]: got nan"},
        Planted{"wrong_adds", "y is right only when it holds zeros before the call",
                "first  forward of "},
        Planted{"wrong_behind", "wrote past the end of the output: an index of y runs too far",
                "first  forward of "},
        Planted{"wrong_workspace", "y is right only when the workspace holds zeros",
                "first  forward of "},
        Planted{"wrong_accumulate",
                "dw agrees with a gradient that is not added to the previous value of dw: "
                "accumulate seems to be ignored",
                "first  backward_weight of "},
        Planted{"wrong_race", "race", "first  backward_weight of "},
        Planted{"wrong_crash", "it ends the process by signal 11 (Segmentation fault): an index",
                " --problem n=3,c=4,h=9,w=8,k=8,r=3,s=3,stride=1,pad=1,dilation=1,groups=1\n"},
        Planted{"wrong_throws", "it ended with an exception", "first  forward of "},
        Planted{"wrong_blocks", "wrong: ", "first  forward of "}),
    [](const auto& planted) { return std::string(planted.param.algorithm); });

TEST(Check, PassesWhatIsRightAndSaysHowMuchItLookedAt) {
  const Called called = check("no_mistake --quick");
  EXPECT_EQ(called.code, 0) << called.out << called.err;
  EXPECT_NE(called.out.find("ok     no_mistake: "), std::string::npos) << called.out;
  EXPECT_NE(called.out.find(" cases of forward, backward_data, backward_weight agree"),
            std::string::npos)
      << called.out;
}

TEST(Check, OfOneProblemShowsAFaultAgain) {
  const Called called = check("wrong_dilation --problem n=1,c=1,h=9,w=9,k=1,r=3,s=3,dilation=2");
  EXPECT_EQ(called.code, 1);
  EXPECT_NE(called.out.find("\nagain  convscope check conv2d wrong_dilation --plugin " + kPlanted +
                            " --problem n=1,c=1,h=9,w=9,"),
            std::string::npos)
      << called.out;
  EXPECT_EQ(check("wrong_dilation --problem n=1,c=1,h=9,w=9,k=1,r=3,s=3").code, 0);
}

// A sum of 1352 terms of equal sign, added in one chain of f32 additions, loses more digits than
// the algorithm declares.
TEST(Check, FindsAChainThatTheAlgorithmKeepsQuietAbout) {
  const Called called = check("wrong_one_chain --problem n=1,c=8,h=24,w=24,k=8,r=13,s=13,pad=6");
  EXPECT_EQ(called.code, 1);
  EXPECT_NE(called.out.find("terms seem to be added in one chain"), std::string::npos)
      << called.out;
}

// Integer algorithms are checked only on codes.
TEST(Check, ChecksCodes) {
  for (const std::string name : {"int8_direct", "int8_depthwise", "int8_block_sparse"}) {
    const Called called = call_program("check conv2d " + name + " --quick");
    EXPECT_EQ(called.code, 0) << called.out << called.err;
    EXPECT_NE(called.out.find(" cases of forward agree"), std::string::npos) << called.out;
  }
  const Called one = call_program(
      "check conv2d int8_direct --problem n=2,c=32,h=5,w=6,k=16,r=3,s=3,pad=1,types=u8:i8:i32:u8");
  EXPECT_EQ(one.code, 0) << one.out << one.err;
  EXPECT_NE(one.out.find(": 1 cases of forward"), std::string::npos) << one.out;
  const Called wrong = check("wrong_codes --quick");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.out.find("types=u8:i8:i32:u8"), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.out.find(": expected "), std::string::npos) << wrong.out;
}

TEST(Check, TakesAlgorithmsThatAreHere) {
  const Called good = call_program("check conv2d winograd_f4x3 --quick");
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  const Called unknown = call_program("check conv2d winograd_f4x4");
  EXPECT_EQ(unknown.code, 5);
  EXPECT_NE(unknown.err.find("did you mean 'winograd_f4x3'?"), std::string::npos) << unknown.err;
  EXPECT_EQ(call_program("check conv2d direct --problem c=x").code, 2);
}

}  // namespace
}  // namespace convscope::testing
