// SPDX-License-Identifier: Apache-2.0
// look_test.cpp: tests `convscope look` and the text of its page: counts, refused problems and
// their error sentences. tests/experiments/browser/look_test.py replays the pages in a browser.
#include <gtest/gtest.h>

#include <filesystem>

#include "experiments/look/look_data.h"
#include "experiments/look/look_page.h"
#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;
using testing::TemporaryFolder;

// Most algorithms of a family have another algorithm as their lesson.
TEST(Look, SaysWhenTheLessonIsOfAnotherAlgorithm) {
  for (const char* const own : {"winograd", "winograd_lesson", "direct", "fft"}) {
    EXPECT_EQ(look_at(own).other_algorithm, "") << own;
  }
  const Look other = look_at("winograd_f4x3");
  EXPECT_NE(other.other_algorithm.find("winograd_f4x3 has no lesson"), std::string::npos);
  EXPECT_NE(other.other_algorithm.find("another algorithm: F(2x2,3x3)"), std::string::npos)
      << other.other_algorithm;
  EXPECT_NE(other.page.find("winograd_f4x3 has no lesson"), std::string::npos);
  EXPECT_EQ(look_page("winograd").find("has no lesson"), std::string::npos);
}

TEST(Look, ItsCountsAreThoseThatTheAlgorithmIsKnownFor) {
  const char* const problem = "n=1,c=2,h=6,w=6,k=2,r=3,s=3";
  const int textbook = 2 * 16 * 2 * 9;  // K P Q C R S
  const Look direct = look_at("direct", problem);
  EXPECT_EQ(direct.textbook, textbook);
  EXPECT_EQ(direct.products, textbook);
  EXPECT_EQ(direct.scalings, 0);
  EXPECT_EQ(direct.reads, 3 * textbook);
  EXPECT_EQ(direct.writes, textbook + 2 * 16);
  const Look winograd = look_at("winograd", problem);
  EXPECT_EQ(winograd.textbook, textbook);
  EXPECT_EQ(winograd.products, 4 * 16 * 2 * 2);  // tiles, points, channel pairs
  EXPECT_GT(winograd.scalings, 0);
}

TEST(Look, EveryLessonMakesAPageInEachOfItsDirections) {
  ASSERT_GE(lessons_to_look_at().size(), 9u);
  for (const std::string& name : lessons_to_look_at()) {
    for (const Direction direction : kDirections) {
      if (name == "int8" && direction != Direction::forward) continue;
      SCOPED_TRACE(cat(name, ", ", name_of(direction)));
      const Look look = look_at(name, "", direction);
      EXPECT_LE(look.events, kMaxLookEvents);
      EXPECT_GE(look.events, 400);
      // Codes are rounded to whole steps.
      EXPECT_EQ(look.step > 0, name == "int8");
      EXPECT_LE(look.largest_difference, name == "int8" ? 0.5001 * look.step : 1e-4);
      EXPECT_NE(look.page.find("const data = {\"lesson\":\"" + look.lesson), std::string::npos);
      // The page must contain the source file of every line that the lesson reports, and no file
      // may be empty.
      EXPECT_NE(look.page.find("\"file\":\"" + name), std::string::npos);
      EXPECT_EQ(look.page.find("\"text\":\"\""), std::string::npos);
      EXPECT_EQ(look.page.find("://"), std::string::npos);  // no network
      // The page must contain the values of the two arrays that the direction reads.
      const std::size_t first = look.page.find("\"values\":[");
      ASSERT_NE(first, std::string::npos);
      EXPECT_NE(look.page.find("\"values\":[", first + 1), std::string::npos);
    }
  }
}

TEST(Look, AnAlgorithmLeadsToTheLessonOfItsFolder) {
  EXPECT_EQ(look_at("winograd_lesson").lesson, "winograd_lesson");
  EXPECT_EQ(look_at("winograd_f4x3").lesson, "winograd_lesson");
  EXPECT_EQ(look_at("int8_direct").lesson, "int8_lesson");
}

TEST(Look, RefusesWithASentence) {
  EXPECT_ERROR(ErrorKind::kUnavailable,
               "unknown algorithm 'winogard'; did you mean 'winograd'? (with a lesson: ",
               look_at("winogard"));
  EXPECT_ERROR(ErrorKind::kUnavailable, "got direct_batch_lanes of the folder batch_lanes",
               look_at("direct_batch_lanes"));
  EXPECT_ERROR(ErrorKind::kUnavailable, "expects a kernel of 3x3 with stride 1",
               look_at("winograd", "n=1,c=1,h=8,w=8,k=1,r=5,s=5"));
  EXPECT_ERROR(ErrorKind::kUnavailable, "int8_lesson computes, but it does not compute",
               look_at("int8", "", Direction::backward_data));
  EXPECT_ERROR(ErrorKind::kUnavailable, "expects block-sparse weights, got dense",
               look_at("block_sparse", "n=1,c=2,h=5,w=5,k=4,r=3,s=3"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected at least one image", look_at("direct", "n=0"));
}

// Returns the error sentence for a refused problem, or "" for an accepted one.
std::string refusal(const char* algorithm, const std::string& problem) {
  try {
    look_at(algorithm, problem);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Look, AProblemThatIsTooLargeIsToldItsCountAndOneThatFits) {
  // The expected number of events has three terms. The lesson initialises 36 pixels of each of 32
  // output channels. Each output element takes 32 * 9 products, and each product reads three
  // elements and writes one. The starts of two steps count as two events.
  const std::string all = refusal("direct", "n=1,c=32,h=8,w=8,k=32,r=3,s=3");
  EXPECT_NE(all.find(cat("got ", 36 * 32 + 4 * 36 * 32 * 32 * 9 + 2, " of ")), std::string::npos)
      << all;
  for (const auto& [algorithm, problem] :
       {std::pair("direct", "n=1,c=32,h=8,w=8,k=32,r=3,s=3"),
        std::pair("fft", "n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1"),
        std::pair("depthwise", "n=2,c=32,h=32,w=32,k=32,r=3,s=3,groups=32"),
        std::pair("block_sparse", "n=1,c=64,h=32,w=32,k=64,r=3,s=3,weights=blocks16x1:100")}) {
    const std::string sentence = refusal(algorithm, problem);
    EXPECT_NE(sentence.find("expected a problem of at most 60000 reads, writes and sums"),
              std::string::npos)
        << sentence;
    // The proposed problem makes a page.
    const std::size_t end = sentence.find(" would fit"), begin = sentence.rfind("; ", end) + 2;
    ASSERT_NE(end, std::string::npos) << sentence;
    EXPECT_EQ(refusal(algorithm, sentence.substr(begin, end - begin)), "");
  }
}

TEST(Look, AFrameHoldsThePageAsAnAttribute) {
  const std::string frame = look_frame("<p class=\"a\">1 & 2</p>", 300);
  EXPECT_NE(frame.find("height:300px"), std::string::npos);
  EXPECT_NE(frame.find("srcdoc=\"&lt;p class=&quot;a&quot;&gt;1 &amp; 2&lt;/p&gt;\""),
            std::string::npos)
      << frame;
  EXPECT_EQ(look_page("gemm_1x1"), look_at("gemm_1x1").page);  // equal arguments give equal pages
}

TEST(Look, Base64IsThatOfTheRfc) {  // RFC 4648, section 10
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe"), "//4=");
}

TEST(LookCommand, WritesThePageAndPrintsItsPathAndOneLineOfCounts) {
  const TemporaryFolder folder;
  const Called done = call_program("look winograd", folder / ".");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out.substr(0, done.out.find('\n')), "look-winograd.html");
  EXPECT_NE(done.out.find(" reads, 512 writes, 256 multiplications (textbook: 576), 6272 more by "
                          "constants\n"),
            std::string::npos)
      << done.out;
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 2);
  EXPECT_TRUE(std::filesystem::exists(folder / "look-winograd.html"));
  const Called named =
      call_program("look direct --direction backward_data -o a.html", folder / ".");
  EXPECT_TRUE(named.out.starts_with("a.html\ndirect_lesson, backward_data, ")) << named.out;
  EXPECT_TRUE(std::filesystem::exists(folder / "a.html"));
}

TEST(LookCommand, ItsExitCodesAreThoseOfTheHouse) {
  const TemporaryFolder folder;
  EXPECT_EQ(call_program("look winogard", folder / ".").code, 5);
  EXPECT_EQ(call_program("look", folder / ".").code, 2);
  const Called direction = call_program("look direct --direction forwards", folder / ".");
  EXPECT_EQ(direction.code, 2);
  EXPECT_NE(direction.err.find("did you mean 'forward'?"), std::string::npos) << direction.err;
  EXPECT_EQ(call_program("look direct --problem n=8,c=64,h=56,w=56,k=64", folder / ".").code, 2);
  EXPECT_EQ(call_program("look direct --problem nonsense", folder / ".").code, 2);
  EXPECT_EQ(call_program("look direct -o no/such/folder/a.html", folder / ".").code, 6);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "."));
}

}  // namespace
}  // namespace convscope
