// SPDX-License-Identifier: Apache-2.0
// check_cheats_test.cpp: tests `convscope check` on plug-ins that cheat, and on a folder of such
// plug-ins. The verdict must be right, whatever the plug-ins print, cache, start or terminate.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "experiments/check/check_algorithm.h"
#include "experiments/check/features.h"
#include "experiments/check/matrix/tolerance.h"
#include "tests/experiments/plugins/plugin_paths.h"
#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;

constexpr const char* kProblem = " --problem n=1,c=2,h=5,w=6,k=3,r=3,s=3,pad=1";

Called check(const std::string& cheat, const std::string& words = kProblem) {
  return call_program("check conv2d cheat --plugin '" + kCheat + "' " + words, "",
                      "CONVSCOPE_CHEAT=" + cheat);
}

struct Cheat {
  const char* name;
  const char* verdict;  // the beginning of stdout
  const char* cause;
};

class CheatingPlugin : public ::testing::TestWithParam<Cheat> {};

TEST_P(CheatingPlugin, IsFoundOutAndNothingItDoesIsTheVerdict) {
  const Called called = check(GetParam().name, std::string(kProblem) + " --timeout 20");
  EXPECT_EQ(called.code, 1) << called.out << called.err;
  EXPECT_TRUE(called.out.starts_with(GetParam().verdict)) << called.out;
  const std::string line = called.out.substr(0, called.out.find('\n'));
  // On a busy machine a late thread may write into the y of a later call.
  const bool is_later = std::string_view(GetParam().name) == "late" &&
                        line.find("something is kept between calls") != std::string::npos;
  EXPECT_TRUE(is_later || line.find(GetParam().cause) != std::string::npos) << called.out;
  EXPECT_EQ(called.out.find("\nok"), std::string::npos) << called.out;
}

INSTANTIATE_TEST_SUITE_P(
    Check, CheatingPlugin,
    ::testing::Values(
        Cheat{"holds_last", "wrong  cheat: ", "y still holds the last result"},
        Cheat{"by_address", "wrong  cheat: ", "is cached by its address"},
        Cheat{"every_ninth", "wrong  cheat: ", "something is kept between calls"},
        Cheat{"prior_problem", "wrong  cheat: ", "something is kept between calls"},
        Cheat{"late", "wrong  cheat: ", "still changes after the call has returned"},
        Cheat{"exits", "wrong  cheat: ", "ends the process with status 0 before its result is"},
        Cheat{"quits", "wrong  cheat: ", "exit(), _exit() or the like is called"},
        Cheat{"aborts", "wrong  cheat: ", "abort(), a failed assert"},
        Cheat{"forges", "wrong  cheat: ", "y "},
        Cheat{"floods", "wrong  cheat: ", "writes more than 1048576 bytes"},
        Cheat{"forks", "wrong  cheat: ", "it starts processes that continue after its calls"}),
    [](const auto& cheat) { return std::string(cheat.param.name); });

TEST(CheckOfCheats, PassesWhatIsHonestAndWhatClosesAllFiles) {
  for (const char* const cheat : {"none", "closes"}) {
    const Called called = check(cheat);
    EXPECT_EQ(called.code, 0) << called.out << called.err;
    EXPECT_TRUE(called.out.starts_with("ok     cheat: ")) << called.out;
  }
}

TEST(CheckOfCheats, QuotesWhatAPluginPrints) {
  const Called forged = check("forges");
  EXPECT_NE(forged.out.find("\n     | ok     cheat: 546 cases"), std::string::npos) << forged.out;
  const Called early = check("prints_at_start");
  EXPECT_EQ(early.code, 0);
  EXPECT_TRUE(early.out.starts_with("ok     cheat: 7 cases")) << early.out;
  EXPECT_NE(early.out.find("\n     | ok     cheat: 546 cases"), std::string::npos) << early.out;
}

TEST(CheckOfCheats, EndsAnEndlessLoopInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const Called called = check("endless", std::string(kProblem) + " --timeout 0.5 --json -");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(called.code, 1);
  const Json json = Json::parse(called.out);
  EXPECT_EQ(json["rows"][0]["status"], "timeout");
  EXPECT_EQ(json["rows"][0]["cause"], "it is not done after 0.5 s, which --timeout allows");
  EXPECT_EQ(json["settings"]["timeout"], 0.5);
}

TEST(CheckOfCheats, DemandsWhatIsRequired) {
  const Called free = check("only_1x1", "--quick");
  EXPECT_EQ(free.code, 0) << free.out;
  EXPECT_NE(free.out.find("\ntakes  pointwise, forward; not kernels, stride"), std::string::npos)
      << free.out;
  const Called demanded = check("only_1x1", "--quick --require pointwise,stride,backward");
  EXPECT_EQ(demanded.code, 1);
  EXPECT_TRUE(demanded.out.starts_with("unmet  cheat: ")) << demanded.out;
  EXPECT_NE(demanded.out.find("stride: it refuses forward of n=2,c=4,"), std::string::npos)
      << demanded.out;
  EXPECT_NE(demanded.out.find("backward: it does not compute backward_data"), std::string::npos)
      << demanded.out;
  EXPECT_EQ(check("none", "--quick --require stride,groups,depthwise,dilation").code, 0);
  const Called unknown = check("none", "--require strides");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("did you mean 'stride'?"), std::string::npos) << unknown.err;
}

TEST(CheckOfCheats, HoldsAAlgorithmToASmallerErrorGrowth) {
  const std::string chain = "check conv2d direct_lesson --problem n=1,c=64,h=12,w=12,k=8,r=5,s=5 ";
  EXPECT_EQ(call_program(chain).code, 0);
  const Called held = call_program(chain + "--max-error-growth 0.01 --json -");
  EXPECT_EQ(held.code, 1);
  const Json row = Json::parse(held.out)["rows"][0];
  EXPECT_EQ(row["status"], "wrong");
  EXPECT_EQ(row["error_growth"], 0.01);
  for (const char* const bad : {"-1", "nan", "inf"}) {
    EXPECT_EQ(call_program(chain + "--max-error-growth=" + bad).code, 2) << bad;
    EXPECT_EQ(call_program(chain + "--timeout=" + bad).code, 2) << bad;
  }
}

// The result has one row for each submission. A broken submission does not affect the other rows.
TEST(CheckOfCheats, OfAFolderHasARowForEach) {
  const TemporaryFolder folder;
  const std::string student_folder = folder / "students";
  std::filesystem::create_directory(student_folder);
  std::filesystem::copy_file(kCheat, student_folder + "/anna.so");
  std::filesystem::copy_file(kOdd, student_folder + "/ben.so");
  std::ofstream(student_folder + "/cleo.so") << "no library";
  const std::string json = folder / "marks.json";
  const Called called =
      call_program("check --plugin '" + student_folder + "'" + kProblem + " --json '" + json + "'");
  EXPECT_EQ(called.code, 1) << called.out << called.err;
  EXPECT_NE(called.out.find("\nanna.so  cheat      ok "), std::string::npos) << called.out;
  EXPECT_NE(called.out.find("\nben.so   odd        wrong "), std::string::npos) << called.out;
  EXPECT_NE(called.out.find("\ncleo.so  -          refused "), std::string::npos) << called.out;
  EXPECT_NE(called.out.find("\n1 of 3 pass\n"), std::string::npos) << called.out;
  const Json marks = Json::parse(text_of(json));
  EXPECT_EQ(marks["format"], "convscope check 1");
  EXPECT_EQ(marks["complete"], true);
  EXPECT_EQ(marks["passed"], 1);
  EXPECT_EQ(marks["failed"], 2);
  ASSERT_EQ(marks["rows"].size(), 3u);
  EXPECT_EQ(marks["rows"][0]["plugin"], student_folder + "/anna.so");
  EXPECT_EQ(marks["rows"][0]["hash"].get<std::string>().size(), 16u);
  EXPECT_EQ(marks["rows"][2]["status"], "refused");
  EXPECT_EQ(call_program("check").code, 2);
}

// ---- lists of problems ----------------------------------------------------------------------

TEST(CheckLists, OfOtherOperatorsArePassedOver) {
  const TemporaryFolder folder;
  std::ofstream(folder / "edge_cases.txt") << "# operator: conv2d\nc=1,h=1,w=1,k=1\n";
  std::ofstream(folder / "others.txt") << "# operator: another\nc=9,h=9,w=9,k=9\n";
  std::ofstream(folder / "clouds.txt") << "# no word about it\ncloud=shell,sites=9\n";
  std::ofstream(folder / "mine.txt") << "c=2,h=2,w=2,k=2\n";
  const CheckLists lists = check_lists(folder.path());
  ASSERT_EQ(lists.edge_cases.size(), 1u);
  ASSERT_EQ(lists.others.size(), 1u);
  EXPECT_EQ(lists.others[0].c, 2);
  std::ofstream(folder / "mine.txt") << "c=2,h=2,w=2,k=2\nc=2,hh=2\n";
  EXPECT_ERROR(ErrorKind::kIo, "mine.txt:2: ", check_lists(folder.path()));
  EXPECT_ERROR(ErrorKind::kIo, "no algorithm was checked", check_lists(folder / "nowhere"));
}

TEST(CheckLists, OfTheProgramAreOfConv2d) {
  const CheckLists lists = check_lists(CONVSCOPE_SOURCE_DIR "/experiments/shapes");
  EXPECT_GT(lists.edge_cases.size(), 10u);
  EXPECT_GT(lists.others.size(), 100u);
}

TEST(Tolerance, IsOneThatEveryAlgorithmOfTheProgramKeeps) {
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cpu).entries()) {
    EXPECT_LE(algorithm.error_growth, algorithm.one_chain ? kMaxChainGrowth : kMaxErrorGrowth)
        << name;
  }
}

}  // namespace
}  // namespace convscope::testing
