// SPDX-License-Identifier: Apache-2.0
// ladder_bench_test.cpp: tests `bench conv2d --ladder`: one run checks and times every rung, a rung
// that cannot run shows the reason, and the JSON can be plotted.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/bench/ladder/ladder_report.h"
#include "experiments/report/plot_kind.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "tests/support/cache_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

const Conv2dProblem kProblem{.n = 1, .c = 4, .h = 8, .w = 8, .k = 4, .r = 3, .s = 3};

LadderOptions quick() {
  LadderOptions out{.min_seconds = 1e-4, .least_samples = 2};
  CpuPeaks& peaks = out.peaks.emplace();
  peaks.cores = 4;
  peaks.flops = {.one_thread = 1e11, .all_threads = 4e11};
  peaks.int8 = {.one_thread = 4e11, .all_threads = 16e11};
  return out;
}
LadderResult climbed(const Conv2dLadder& ladder, const Conv2dProblem& problem = kProblem,
                     Direction direction = Direction::forward) {
  return bench_ladder(ladder, problem, direction, quick(), [](const std::string&) {});
}

TEST(LadderBench, TimesEveryRungAndSetsItAgainstTheOneBelow) {
  const Conv2dLadder ladder{
      .name = "test",
      .rungs = {
          {.algorithm = "reference", .sentence = "sums in double"},
          {.algorithm = "im2col_gemm", .isa = "scalar", .threads = 1, .sentence = "a product"},
          {.algorithm = "im2col_gemm", .sentence = "vector lanes"}}};
  const Isa isa = current_isa();
  const int threads = num_threads();
  for (const Direction direction : kDirections) {
    const LadderResult result = climbed(ladder, kProblem, direction);
    EXPECT_EQ(current_isa(), isa);  // a rung's settings do not persist
    EXPECT_EQ(num_threads(), threads);
    ASSERT_EQ(result.rows.size(), 3u);
    for (const LadderRow& row : result.rows) {
      EXPECT_EQ(row.left_out, "");
      EXPECT_GE(row.time.samples, 2);
      EXPECT_LE(row.error_ratio, 1);
      // The share of the peak is the rate of executed FLOPs divided by the peak of the rung's
      // threads. quick() sets a peak of 100 GFLOP/s per thread.
      EXPECT_DOUBLE_EQ(row.peak_percent, row.gflops_executed / std::min(row.threads, 4));
    }
    EXPECT_EQ(result.rows[0].factor, 0);
    EXPECT_DOUBLE_EQ(result.rows[2].factor,
                     result.rows[1].time.median_ms / result.rows[2].time.median_ms);
    EXPECT_DOUBLE_EQ(result.total_factor(),
                     result.rows[0].time.median_ms / result.fastest()->time.median_ms);
    const std::string table = ladder_table(result);
    for (const char* part : {"sums in double", "im2col_gemm, scalar, 1 thread", "% of peak"}) {
      EXPECT_NE(table.find(part), std::string::npos) << table;
    }
  }
}

// Integers are compared with the int8 peak.
TEST(LadderBench, ProblemsOfIntegersAreClimbedToo) {
  const Conv2dLadder ladder{.name = "test",
                            .rungs = {{.algorithm = "direct", .sentence = "f32"},
                                      {.algorithm = "int8_direct", .sentence = "bytes"}}};
  const Conv2dProblem problem =
      Conv2dProblem::parse("c=16,h=6,w=6,k=16,r=3,s=3,types=u8:i8:i32:u8,layout=nchw16c");
  const LadderOptions options = quick();
  const LadderResult result =
      bench_ladder(ladder, problem, Direction::forward, options, [](const std::string&) {});
  ASSERT_EQ(result.rows.size(), 2u);
  EXPECT_NE(result.rows[0].left_out.find("expects operands of one type"), std::string::npos);
  EXPECT_TRUE(result.rows[1].timed()) << result.rows[1].left_out;
  const double threads = std::min(num_threads(), 4);
  EXPECT_DOUBLE_EQ(result.rows[1].peak_percent, result.rows[1].gflops_executed / (4 * threads));
  EXPECT_DOUBLE_EQ(result.peak_gflops, 400 * threads);
}

TEST(LadderBench, ARungThatCannotRunIsLeftOutWithItsReason) {
  const Conv2dLadder ladder{
      .name = "test",
      .rungs = {{.algorithm = "im2col_gemm", .sentence = "all of it"},
                {.algorithm = "depthwise", .sentence = "needs groups"},
                {.algorithm = "im2col_gemm", .threads = 1000, .sentence = "too many threads"},
                {.algorithm = "im2col_gemm",
                 .threads = num_threads(),
                 .sentence = "the same number of threads, named"},
                {.algorithm = "reference", .sentence = "the last one"}}};
  const LadderResult result = climbed(ladder);
  ASSERT_EQ(result.rows.size(), 5u);
  EXPECT_TRUE(result.rows[1].left_out.starts_with("refuses: expects")) << result.rows[1].left_out;
  EXPECT_NE(result.rows[2].left_out.find("1000 threads are more than"), std::string::npos);
  EXPECT_EQ(result.rows[3].left_out, "the same as im2col_gemm in this run");
  for (int i = 1; i <= 3; ++i) EXPECT_FALSE(result.rows[static_cast<std::size_t>(i)].timed());
  EXPECT_DOUBLE_EQ(result.rows[4].factor,
                   result.rows[0].time.median_ms / result.rows[4].time.median_ms);
  const std::string table = ladder_table(result);
  EXPECT_NE(table.find("left out: refuses: expects"), std::string::npos) << table;
}

TEST(LadderBench, NoRungRunsOnMoreThanTheForcedInstructionSet) {
  const Isa isa = current_isa();
  if (isa == Isa::scalar) GTEST_SKIP() << "one instruction set only";
  const Conv2dLadder ladder{
      .name = "test",
      .rungs = {{.algorithm = "direct", .isa = "scalar", .sentence = "one lane"},
                {.algorithm = "direct", .isa = "avx2", .sentence = "lanes"},
                {.algorithm = "im2col_gemm", .isa = "avx2", .sentence = "a product"}}};
  set_isa(Isa::scalar);
  const LadderResult result = climbed(ladder);
  set_isa(isa);
  EXPECT_TRUE(result.rows[0].timed());
  EXPECT_EQ(result.rows[1].left_out, supports_isa(Isa::avx2)
                                         ? "CONVSCOPE_ISA allows scalar at most, got avx2"
                                         : "what runs here is scalar, not avx2");
  EXPECT_TRUE(result.rows[2].timed());  // another algorithm: it states what it ran on
  EXPECT_EQ(result.rows[2].rung, "im2col_gemm, scalar");
}

TEST(LadderBench, TheJsonHoldsEveryRungAndIsDrawn) {
  const Conv2dLadder ladder{.name = "test",
                            .rungs = {{.algorithm = "reference", .sentence = "sums in double"},
                                      {.algorithm = "direct", .sentence = "tiles of sums"},
                                      {.algorithm = "depthwise", .sentence = "needs groups"}}};
  const std::vector<LadderResult> results = {climbed(ladder)};
  BenchReportSettings settings;
  settings.threads = 2;
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "l.json") << ladder_json(results, settings);
  const Json all = Json::parse(std::ifstream(folder / "l.json"));
  EXPECT_EQ(all.at("format"), kLadderFormat);
  const Json& one = all.at("ladders").at(0);
  EXPECT_EQ(one.at("problem"), kProblem.text());
  ASSERT_EQ(one.at("rungs").size(), 3u);
  for (const char* field : {"rung", "adds", "algorithm", "isa", "threads", "math", "status",
                            "reason", "samples", "median_ms", "gflops_effective", "gflops_executed",
                            "peak_percent", "factor", "error_ratio"}) {
    EXPECT_TRUE(one.at("rungs").at(0).contains(field)) << field;
  }
  EXPECT_EQ(one.at("rungs").at(0).at("status"), "ok");
  EXPECT_EQ(one.at("rungs").at(2).at("status"), "left out");
  EXPECT_TRUE(one.at("rungs").at(0).at("factor").is_null());
  EXPECT_DOUBLE_EQ(one.at("rungs").at(1).at("factor").get<double>(), results[0].rows[1].factor);
  const std::string csv = ladder_csv(results, settings);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4) << csv;

  EXPECT_TRUE(is_ladder_file(folder / "l.json"));
  const DrawnPlots drawn = draw_plots(read_ladders({folder / "l.json"}));
  ASSERT_EQ(drawn.plots.size(), 1u);
  EXPECT_EQ(drawn.plots[0].kind, "ladder");
  for (const char* part : {"reference", "sums in double", "tiles of sums", "test, \u00D7"}) {
    EXPECT_NE(drawn.plots[0].svg.find(part), std::string::npos) << part;
  }
  ASSERT_EQ(drawn.left_out.size(), 1u);  // no rung disappears silently
  EXPECT_NE(drawn.left_out[0].find("depthwise is left out: refuses:"), std::string::npos);
  EXPECT_ERROR(ErrorKind::kData, "another format", read_ladders({folder / "none.json"}));
  EXPECT_NE(draw_plots(BenchSet{}, {"ladder"}).left_out.at(0).find("--ladder NAME --json"),
            std::string::npos);
}

TEST(LadderBench, UnknownLaddersAndEmptyBatchesAreMistakes) {
  EXPECT_ERROR(ErrorKind::kUnavailable, "did you mean 'winograd'?",
               ladders_named("winogard", Device{}));
  EXPECT_EQ(ladders_named("all", Device{}).size(), conv2d_ladders(DeviceType::cpu).names().size());
  EXPECT_EQ(ladders_named("direct,direct,fft", Device{}).size(), 2u);
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a batch of at least one image",
               climbed({.name = "test", .rungs = {}}, Conv2dProblem{.n = 0}));
}

// ---- the program -------------------------------------------------------------------------------

struct Result {
  int code = -1;
  std::string out, err;
};

Result call(const std::string& arguments) {
  const testing::CacheFolder cache;  // measured peaks exist, so none are measured
  CpuPeaks peaks;
  // Sets measured peaks that no machine reaches, so that no measured time counts as impossible.
  peaks.flops = peaks.dram_read = peaks.dram_copy = {1e14, 2e14};
  remember_cpu_peaks(peaks);
  const testing::TemporaryFolder folder;
  const std::string command = " " CONVSCOPE_BINARY_DIR "/bin/convscope " + arguments + " >" +
                              (folder / "out") + " 2>" + (folder / "err") + " </dev/null";
  const int status = std::system(command.c_str());
  const auto read = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder / "out"), read(folder / "err")};
}
const std::string kCommand = "bench conv2d --min-time 0.0001 --rounds 1 --ladder ";

TEST(LadderCommand, MeasuresWritesAndDraws) {
  const testing::TemporaryFolder folder;
  const Result result =
      call(kCommand + "direct --problem n=1,c=4,h=8,w=8,k=4,r=3,s=3,pad=1 --json " +
           (folder / "l.json") + " --csv " + (folder / "l.csv"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("ladder direct: forward of n=1,c=4,")) << result.out;
  for (const Conv2dRung& rung : conv2d_ladders(DeviceType::cpu).get("direct").rungs) {
    const Isa isa = *rung.isa != '\0' ? parse_isa(rung.isa) : current_isa();
    if (isa > current_isa() || !supports_isa(isa)) continue;  // it runs with fewer lanes
    EXPECT_NE(result.out.find("  " + label_of(rung) + " "), std::string::npos) << result.out;
  }
  const Result drawn =
      call("plot " + (folder / "l.json") + " -o " + (folder / "l.svg") + " --kind ladder");
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_TRUE(std::ifstream(folder / "l.svg").good());
}

TEST(LadderCommand, MistakesAreOneSentenceAndACode) {
  const auto expect = [](const std::string& arguments, int code, const std::string& part) {
    const Result result = call(kCommand + arguments);
    EXPECT_EQ(result.code, code) << arguments << "\n" << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  expect("stairs", 5, "expected --ladder all or a ladder of device cpu (block_sparse, depthwise,");
  expect("direct --algorithm fft", 2, "because its rungs say what is timed");
  expect("winograd --problem n=1,c=4,h=8,w=8,k=4,r=5,s=5", 5, "expected a problem that a rung");
}

}  // namespace
}  // namespace convscope
