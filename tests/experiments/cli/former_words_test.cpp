// SPDX-License-Identifier: Apache-2.0
// former_words_test.cpp: tests that the program accepts former options, layouts and environment
// variables, with one warning, and reads files of older versions.
#include <gtest/gtest.h>

#include <fstream>

#include "experiments/compare/bench_sides.h"
#include "experiments/report/html/run_environment.h"
#include "framework/check.h"
#include "tests/support/call_program.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

const std::string kBench = "bench conv2d --min-time 0.0001 --rounds 1 --algorithm direct_nchw16c ";
const std::string kProblem = "n=1,c=16,h=6,w=6,k=16,r=3,s=3";

void expect_warning(const Called& called, const std::string& former, const std::string& today) {
  const std::string warning = cat("[names] '", former, "' is now called '", today, "'");
  const std::size_t at = called.err.find(warning);
  EXPECT_NE(at, std::string::npos) << called.err;
  EXPECT_EQ(called.err.find("[names]", at + 1), std::string::npos) << called.err;
}

TEST(FormerWords, LayoutsOfProblemsAndOptions) {
  for (const auto& [former, today] :
       {std::pair{"blocked", "nchw16c"}, {"blocked_y", "nchw:nchw16c"}}) {
    const Called problem =
        call_program(cat(kBench, "--problem ", kProblem, ",layout=", former, " --json -"));
    EXPECT_EQ(problem.code, 0) << problem.err;
    EXPECT_NE(problem.out.find(cat("layout=", today)), std::string::npos) << problem.out;
    expect_warning(problem, former, today);
    const Called option = call_program(cat(kBench, "--problem ", kProblem, " --layout ", former));
    EXPECT_EQ(option.code, 0) << option.err;
    expect_warning(option, former, today);
  }
  // No algorithm of the CPU reads NHWC.
  const Called last = call_program(cat(kBench, "--problem ", kProblem, " --layout channels_last"));
  EXPECT_NE(cat(last.out, last.err).find("layout nhwc"), std::string::npos) << last.out << last.err;
  expect_warning(last, "channels_last", "nhwc");
}

TEST(FormerWords, LayoutsOfConfigs) {
  const Called shown = call_program("config show quickstart conv.layout=blocked");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("layout: nchw16c"), std::string::npos) << shown.out;
  expect_warning(shown, "blocked", "nchw16c");
}

TEST(FormerWords, OptionsOfBaselines) {
  const Called conv = call_program(kBench + "--problem " + kProblem + " --peer cudn");
  EXPECT_EQ(conv.code, 5) << conv.err;
  EXPECT_NE(conv.err.find("expected a baseline (onednn), got 'cudn'"), std::string::npos);
  expect_warning(conv, "--peer", "--baseline");
  const Called none = call_program(kBench + "--problem " + kProblem + " --peer");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("--peer: expected a value"), std::string::npos) << none.err;
  const Called net =
      call_program("bench sparse_net --voxels 300 --channels 4,6,6 --peer /nowhere/none.json");
  EXPECT_EQ(net.code, 6) << net.err;
  expect_warning(net, "--peer", "--baseline");
  EXPECT_EQ(call_program("bench conv2d --help").out.find("--peer"), std::string::npos);
}

TEST(FormerWords, FolderOfBaselines) {
  const TemporaryFolder folder;
  const Called called = call_program(kBench + "--problem " + kProblem + " --baseline onednn", "",
                                     "CONVSCOPE_PEER_DIR=" + folder.path());
  EXPECT_EQ(called.code, 5) << called.err;
  expect_warning(called, "CONVSCOPE_PEER_DIR", "CONVSCOPE_BASELINE_DIR");
}

TEST(FormerWords, RowsOfOlderBenchFilesAreComparedWithTodays) {
  const TemporaryFolder folder;
  const auto side =
      [&](const char* name, const char* layout, const char* algorithm) {
        std::ofstream(folder / name)
            << R"({"format": "convscope bench conv2d 1", "machine": {"cpu": "one", "threads": 1},)"
            << R"( "settings": {"threads": 1}, "rows": [{"problem": "n=1,c=3,layout=)" << layout
            << R"(", "direction": "forward", "algorithm": ")" << algorithm
            << R"(", "device": "cuda", "threads": 1, "median_ms": 1}]})";
        return read_bench_side(folder / name).rows.at(0).key;
      };
  EXPECT_EQ(side("old.json", "channels_last", "depthwise_channels_last"),
            side("new.json", "nhwc", "depthwise_nhwc"));
}

TEST(FormerWords, PeaksOfOlderRuns) {
  EXPECT_EQ(parse_run_environment(R"({"cpu": "one", "ceilings": {"cores": 3}})").cores, 3);
}

}  // namespace
}  // namespace convscope::testing
