// SPDX-License-Identifier: Apache-2.0
// bench_sparse_net_test.cpp: tests `convscope bench sparse_net`: its rows, the algorithms that it
// leaves out, and the times of another library. No test depends on measured times.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/bench/sparse/sparse_net_report.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/cli.h"
#include "experiments/compare/bench_sides.h"
#include "layers/dispatch/kernel_runs.h"
#include "tests/support/cache_folder.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;

const BenchProgress kSilent = [](const std::string&) {};

SparseNetOptions small_net() {
  SparseNetOptions out;
  out.cloud = {.shape = CloudShape::shell, .sites = 400};
  out.channels = {3, 8, 8, 5};
  out.algorithms = {"native", "auto", "halo"};
  out.timing.min_seconds = 1e-4;
  return out;
}

CloudMap map_of(const SparseNetOptions& options) {
  return CloudMap({.cloud = options.cloud}, /*cpu_clock=*/false);
}

TEST(BenchSparseNet, ChecksEachLayerAndTimesBothWays) {
  const SparseNetOptions options = small_net();
  const SparseNetBench bench = bench_sparse_net(options, map_of(options), kSilent);
  ASSERT_EQ(bench.rows.size(), 2u);
  for (const SparseNetRow& row : bench.rows) {
    EXPECT_EQ(row.wrong, "");
    EXPECT_GT(row.error_ratio, 0);  // sums in f32
    EXPECT_LE(row.error_ratio, 1);
    EXPECT_GE(row.forward.samples, 5);
    EXPECT_GE(row.backward.samples, 5);
    EXPECT_GT(row.workspace_bytes, 0u);
    ASSERT_EQ(row.kernels.size(), 3u);
  }
  EXPECT_EQ(bench.rows[0].kernels[0], "3-8: native, native, native");
  EXPECT_EQ(bench.rows[1].algorithm, "auto");
  ASSERT_EQ(bench.refusals.size(), 1u);
  EXPECT_EQ(bench.refusals[0].algorithm, "halo");
  EXPECT_EQ(bench.refusals[0].reason, "there is no such algorithm for cpu");
}

// In each direction, a run calls the algorithm once for each layer of the network.
TEST(BenchSparseNet, RunsEveryLayerInEveryDirection) {
  SparseNetOptions options = small_net();
  options.algorithms = {"native"};
  const KernelCounter counter;
  bench_sparse_net(options, map_of(options), kSilent);
  std::map<std::string, std::int64_t> forward, dx, dw;  // by channels
  for (const auto& [run, count] : counter.runs()) {
    if (run.kernel != "native") continue;  // the oracle's
    auto& to = run.direction == "forward" ? forward : run.direction == "backward_data" ? dx : dw;
    to[run.problem.substr(run.problem.find(",c="))] += count;
  }
  ASSERT_EQ(forward.size(), 3u);
  EXPECT_GT(forward.begin()->second, 5);
  for (const auto& [layer, count] : forward) EXPECT_EQ(count, forward.begin()->second) << layer;
  EXPECT_EQ(dx, dw);
  ASSERT_EQ(dx.size(), 3u);
  for (const auto& [layer, count] : dx) EXPECT_EQ(count, dx.begin()->second) << layer;
}

TEST(BenchSparseNet, ARefusedPrecisionIsNamedWithItsReason) {
  SparseNetOptions options = small_net();
  options.precisions = {ComputePrecision::f16};
  options.algorithms = {"native", "auto"};
  const SparseNetBench bench = bench_sparse_net(options, map_of(options), kSilent);
  EXPECT_TRUE(bench.rows.empty());
  ASSERT_EQ(bench.refusals.size(), 2u);
  EXPECT_NE(bench.refusals[0].reason.find("expects elements of type f32, got f16"),
            std::string::npos)
      << bench.refusals[0].reason;
  EXPECT_NE(bench.refusals[1].reason.find("finds no algorithm"), std::string::npos);
}

class BenchSparseNetCommand : public ::testing::Test {
 protected:
  int call(const std::string& words) {
    std::istringstream in("convscope --threads 1 bench sparse_net --min-time 0.0001 " + words);
    std::vector<std::string> all;
    for (std::string word; in >> word;) all.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : all) arguments.push_back(word.data());
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data());
    out_ = ::testing::internal::GetCapturedStdout();
    errors_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  void write_baseline(const std::string& more = "", const std::string& rows = kRows) {
    std::ofstream(at("baseline.json")) << "{\"format\": \"convscope baseline sparse_net 1\", "
                                          "\"baseline\": \"spconv 2\", \"device\": "
                                          "\"cpu\", \"voxels\": 300, \"channels\": [4, 6, 6]"
                                       << more << ", \"rows\": [" << rows << "]}";
  }
  std::string at(const char* name) const { return folder_ / name; }

  static constexpr const char* kRows =
      "{\"precision\": \"f32\", \"algorithm\": \"native\", \"forward_ms\": 1000, \"backward_ms\": "
      "4000}, {\"precision\": \"f32\", \"algorithm\": \"split_mask\", \"forward_ms\": 900, "
      "\"backward_ms\": 800}";
  const MachineScope scope_;
  const CacheFolder cache_;
  TemporaryFolder folder_;
  std::string out_, errors_;
};

const std::string kNet = "--voxels 300 --channels 4,6,6 ";

TEST_F(BenchSparseNetCommand, PrintsATableAndSaysWhatItLeavesOut) {
  ASSERT_EQ(call(kNet + "--json " + at("n.json")), 0) << errors_;
  EXPECT_TRUE(out_.starts_with("4-6-6, 3x3x3, 300 sites in ")) << out_;
  for (const char* name : {"native", "implicit_gemm", "auto"}) {
    EXPECT_NE(out_.find(cat("| f32       | ", name)), std::string::npos) << out_;
  }
  EXPECT_NE(out_.find("f32 auto (forward, dx, dw): 4-6: "), std::string::npos) << out_;
  EXPECT_TRUE(out_.ends_with(sparse_net_legend(false))) << out_;
  for (const char* name : {"split_mask", "halo"}) {
    EXPECT_NE(errors_.find(cat("left out: f32 ", name, ": there is no such algorithm for cpu")),
              std::string::npos)
        << errors_;
  }
  const Json all = Json::parse(std::ifstream(at("n.json")));
  EXPECT_EQ(all.at("format"), "convscope bench sparse_net 1");
  EXPECT_EQ(all.at("settings").at("channels"), "4-6-6");
  EXPECT_EQ(all.at("map").at("sites"), 300);
  ASSERT_EQ(all.at("rows").size(), 7u);
  EXPECT_EQ(all.at("rows").at(0).at("algorithm"), "map on cpu");
  EXPECT_EQ(all.at("refusals").size(), 2u);
  const BenchSide side = read_bench_side(at("n.json"));
  EXPECT_EQ(side.kind, "sparse_net");
  EXPECT_EQ(side.rows.size(), 7u);
}

TEST_F(BenchSparseNetCommand, HasTheTimesOfAnotherLibraryBesideItsOwn) {
  write_baseline();
  ASSERT_EQ(call(kNet + "--algorithm native,auto --baseline " + at("baseline.json") + " --json " +
                 at("n.json")),
            0)
      << errors_;
  EXPECT_TRUE(out_.ends_with(sparse_net_legend(true))) << out_;
  EXPECT_NE(out_.find("spconv 2"), std::string::npos) << out_;
  const Json all = Json::parse(std::ifstream(at("n.json")));
  const Json& rows = all.at("rows");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows.at(1).at("baseline_algorithm"), "native");
  EXPECT_EQ(rows.at(1).at("baseline_ms"), 1000);
  EXPECT_EQ(rows.at(2).at("baseline_ms"), 4000);
  EXPECT_EQ(rows.at(3).at("algorithm"), "auto");  // with its fastest
  EXPECT_EQ(rows.at(3).at("baseline_algorithm"), "split_mask");
  EXPECT_EQ(rows.at(4).at("baseline_ms"), 800);
  EXPECT_EQ(all.at("baseline").at("name"), "spconv 2");
}

TEST_F(BenchSparseNetCommand, MistakesAreOneSentenceAndACode) {
  const auto expect = [&](const std::string& arguments, int code, const std::string& part) {
    EXPECT_EQ(call(arguments), code) << arguments << "\n" << errors_;
    EXPECT_EQ(out_, "") << arguments;
    EXPECT_NE(errors_.find("error: "), std::string::npos) << errors_;
    EXPECT_NE(errors_.find(part), std::string::npos) << errors_;
  };
  expect("--channels 16", 2, "expected at least two --channels");
  expect("--channels 16,x", 2, "--channels from 1 to 4096");
  expect("--channels 16,,32", 2, "--channels from 1 to 4096");
  expect("--voxels 0", 2, "expected sites from 1 to");
  expect("--cloud shel", 2, "shell");
  expect("--precision f32,f8", 2, "expected --precision to be some of");
  expect("--algorithm hallo", 5, "did you mean 'halo'?");
  expect(kNet + "--algorithm halo", 5, "but each was left out");
  expect("--weights often", 2, "expected --weights once");
  expect("--csv x.csv", 2, "has no CSV form");
  expect(kNet + "--baseline " + at("none.json"), 6, "none.json");
  std::ofstream(at("baseline.json")) << "[]";
  expect(kNet + "--baseline " + at("baseline.json"), 4, "not a JSON object");
  std::ofstream(at("baseline.json")) << "{\"format\": \"convscope bench conv2d 1\"}";
  expect(kNet + "--baseline " + at("baseline.json"), 4, "of the format 'convscope bench conv2d 1'");
  write_baseline("", "");
  expect(kNet + "--baseline " + at("baseline.json"), 4, "without rows");
  write_baseline("", "{\"precision\": \"f32\", \"algorithm\": \"native\", \"forward_ms\": -1}");
  expect(kNet + "--baseline " + at("baseline.json"), 4, "with a row without");
  write_baseline();
  expect("--voxels 301 --channels 4,6,6 --baseline " + at("baseline.json"), 4,
         "with voxels 300 where this network has 301");
  expect("--voxels 300 --channels 4,6 --baseline " + at("baseline.json"), 4,
         "with channels [4,6,6] where this network has [4,6]");
}

}  // namespace
}  // namespace convscope::testing
