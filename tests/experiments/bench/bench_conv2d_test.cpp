// SPDX-License-Identifier: Apache-2.0
// bench_conv2d_test.cpp: tests what `convscope bench conv2d` measures, refuses and writes. No test
// depends on measured times.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/bench/baseline_library.h"
#include "experiments/bench/bench_report.h"
#include "experiments/cli/bench/bench_legend.h"
#include "framework/tensor.h"
#include "tests/support/cache_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

const Conv2dProblem kProblem = Conv2dProblem::parse("n=2,c=3,h=9,w=9,k=4,r=3,s=3");

const Conv2dAlgorithm& algorithm(const char* name) {
  return conv2d_algorithms(DeviceType::cpu).get(name);
}

// An algorithm that computes the last element wrongly.
Conv2dAlgorithm wrong_algorithm() {
  Conv2dAlgorithm out = algorithm("im2col_gemm");
  out.name = "test_wrong";
  out.forward = [](const Conv2dForwardArgs& args) {
    algorithm("im2col_gemm").forward(args);
    static_cast<float*>(args.y)[args.problem.y_shape().numel() - 1] += 0.01f;
  };
  return out;
}

// Returns an algorithm that never writes the last element of y. Its y is right only if an earlier
// run has written this element.
Conv2dAlgorithm lazy_algorithm() {
  Conv2dAlgorithm out = algorithm("im2col_gemm");
  out.name = "test_lazy";
  out.forward = [](const Conv2dForwardArgs& args) {
    float* const last = static_cast<float*>(args.y) + args.problem.y_shape().numel() - 1;
    const float before = *last;
    algorithm("im2col_gemm").forward(args);
    *last = before;
  };
  return out;
}

Conv2dBenchOptions options_with(std::vector<const Conv2dAlgorithm*> algorithms) {
  Conv2dBenchOptions options;
  options.algorithms = std::move(algorithms);
  options.min_seconds = 1e-4;
  options.least_samples = 2;
  return options;
}

Conv2dBenchGroup measured(const Conv2dBenchOptions& options,
                          Direction direction = Direction::forward) {
  return bench_conv2d(options, kProblem, direction, [](const std::string&) {});
}

TEST(BenchConv2d, TimesEachAlgorithmThatIsRight) {
  for (const Direction direction : kDirections) {
    const auto group =
        measured(options_with({&algorithm("im2col_gemm"), &algorithm("reference")}), direction);
    ASSERT_EQ(group.rows.size(), 2u);
    for (const Conv2dBenchRow& row : group.rows) {
      EXPECT_EQ(row.wrong, "");
      EXPECT_GE(row.time.samples, 2);
      EXPECT_GT(row.gflops_effective, 0);
      EXPECT_LE(row.error_ratio, 1);
      EXPECT_EQ(row.roofline_percent, 0);  // no measured peaks were given
      const Conv2dAlgorithm& one = algorithm(row.algorithm.c_str());
      const std::size_t prepared = one.prepared_size(kProblem, direction);
      EXPECT_EQ(row.prepared_bytes, prepared);
      EXPECT_GE(row.workspace_bytes, one.workspace_bytes(kProblem, direction) + prepared);
      EXPECT_LT(row.workspace_bytes, one.workspace_bytes(kProblem, direction) + prepared + 64);
      EXPECT_EQ(row.prepare_ms > 0, prepared > 0);
      EXPECT_LT(row.prepare_ms, 1e3);
    }
  }
}

TEST(BenchConv2d, AWrongResultIsNotTimed) {
  const Conv2dAlgorithm wrong = wrong_algorithm(), lazy = lazy_algorithm();
  const auto group = measured(options_with({&wrong, &algorithm("im2col_gemm"), &lazy}));
  ASSERT_EQ(group.rows.size(), 3u);
  EXPECT_EQ(group.rows[0].algorithm, "im2col_gemm");  // correct ones first
  EXPECT_GT(group.rows[0].time.samples, 0);
  EXPECT_EQ(group.rows[1].algorithm, "test_wrong");
  EXPECT_EQ(group.rows[1].time.samples, 0);
  EXPECT_GT(group.rows[1].error_ratio, 1);
  EXPECT_NE(group.rows[2].wrong.find("not a number or was not written"), std::string::npos);
  EXPECT_TRUE(any_wrong({group}));
  EXPECT_NE(bench_table(group).find("test_wrong: WRONG RESULT, not timed: element 391 of 392"),
            std::string::npos)
      << bench_table(group);
  const Json rows = Json::parse(bench_json({group}, {})).at("rows");
  EXPECT_EQ(rows[0]["status"], "ok");
  EXPECT_EQ(rows[1]["status"], "wrong");
  EXPECT_TRUE(rows[1]["median_ms"].is_null());
  EXPECT_FALSE(any_wrong({measured(options_with({&algorithm("im2col_gemm")}))}));
}

TEST(BenchConv2d, ARefusalCarriesTheAlgorithmsReason) {
  Conv2dAlgorithm picky = algorithm("im2col_gemm");
  picky.name = "test_picky";
  picky.supports = [](const Conv2dProblem&, Direction) {
    return Conv2dSupport::no("expects a full moon");
  };
  picky.backward_data = nullptr;
  const auto group = measured(options_with({&picky}));
  EXPECT_TRUE(group.rows.empty());
  ASSERT_EQ(group.refusals.size(), 1u);
  EXPECT_EQ(group.refusals[0].reason, "expects a full moon");
  EXPECT_NE(bench_table(group).find("test_picky refuses: expects a full moon"), std::string::npos);
  const Json refusal = Json::parse(bench_json({group}, {})).at("refusals").at(0);
  EXPECT_EQ(refusal["algorithm"], "test_picky");
  EXPECT_EQ(measured(options_with({&picky}), Direction::backward_data).refusals[0].reason,
            "does not compute backward_data");
}

TEST(BenchConv2d, OnlyAutoTimesItsChoiceAlone) {
  Conv2dBenchOptions options =
      options_with(algorithms_named<Conv2dProblem>("bench conv2d", "auto", Device{}));
  options.only_auto = true;
  const auto group = measured(options);
  ASSERT_EQ(group.rows.size(), 1u);
  EXPECT_TRUE(group.rows[0].auto_choice);
}

// If weights are used once, the benchmark prepares them before every run; if they are used often,
// it prepares them once.
TEST(BenchConv2d, WeightsArePreparedInEachCallOrBefore) {
  static bool fresh = false;  // prepared since the last run
  static int with_old = 0;    // runs without
  Conv2dAlgorithm counting = algorithm("direct");
  counting.prepare_weights = [](const Conv2dPrepareArgs& args) {
    algorithm("direct").prepare_weights(args);
    fresh = true;
  };
  counting.forward = [](const Conv2dForwardArgs& args) {
    if (!fresh) ++with_old;
    fresh = false;
    algorithm("direct").forward(args);
  };
  Conv2dBenchOptions options = options_with({&counting});
  const auto run = [&] {
    fresh = false;
    with_old = 0;
    const auto group = bench_conv2d(options, kProblem, Direction::forward, [](const auto&) {});
    ASSERT_EQ(group.rows.size(), 1U);
    EXPECT_EQ(group.rows[0].wrong, "");
    EXPECT_GT(group.rows[0].prepared_bytes, 0U);
  };
  run();
  EXPECT_EQ(with_old, 0);
  options.weights = WeightUse::often;
  run();
  EXPECT_GT(with_old, 0);
}

TEST(BenchConv2d, ABatchOfNoImagesIsSkipped) {
  const auto group = bench_conv2d(options_with({&algorithm("im2col_gemm")}), Conv2dProblem{.n = 0},
                                  Direction::forward, [](const std::string&) {});
  EXPECT_NE(group.skipped, "");
  EXPECT_NE(bench_table(group).find("skipped: "), std::string::npos);
  EXPECT_ERROR(ErrorKind::kInvalid, "expected elements of type f32",
               bench_conv2d(options_with({}), Conv2dProblem{.dtype = DType::f64},
                            Direction::forward, [](const std::string&) {}));
}

// ---- a baseline made of our own reference -------------------------------------------------------

struct TestBaselineCase {
  Conv2dProblem problem;
  Tensor x, w, y;
  float added;
};

const ConvscopeBaselineVariant kTestVariants[] = {{"direct", CONVSCOPE_BASELINE_OWN_LAYOUT, 4},
                                                  {"broken", CONVSCOPE_BASELINE_OWN_LAYOUT, 4},
                                                  {"absent", CONVSCOPE_BASELINE_OWN_LAYOUT, 4},
                                                  {"direct", CONVSCOPE_BASELINE_PLAIN, 4}};

ConvscopeBaselineCase* create_case(const ConvscopeBaselineProblem* z, std::int32_t variant,
                                   const ConvscopeBaselineInputs* inputs, char* reason,
                                   std::size_t reason_bytes) {
  if (std::string(kTestVariants[variant].algorithm) == "absent") {
    std::snprintf(reason, reason_bytes, "no such kernel");
    return nullptr;
  }
  auto* const out = new TestBaselineCase{
      kProblem, {}, {}, Tensor::empty(kProblem.y_shape()), variant == 1 ? 0.01f : 0.0f};
  EXPECT_EQ(z->n * z->k * z->p * z->q, kProblem.y_shape().numel());
  out->x = Tensor::from<float>({static_cast<const float*>(inputs->first),
                                static_cast<std::size_t>(kProblem.x_shape().numel())},
                               kProblem.x_shape());
  out->w = Tensor::from<float>({static_cast<const float*>(inputs->second),
                                static_cast<std::size_t>(kProblem.w_shape().numel())},
                               kProblem.w_shape());
  return reinterpret_cast<ConvscopeBaselineCase*>(out);
}

ConvscopeBaseline test_baseline() {
  ConvscopeBaseline baseline{};
  baseline.abi = CONVSCOPE_BASELINE_ABI;
  baseline.name = "test";
  baseline.version = "1";
  baseline.device = "cpu";
  baseline.variant_count = 4;
  baseline.variants = kTestVariants;
  baseline.set_threads = [](std::int32_t) {};
  baseline.create = create_case;
  baseline.run = [](ConvscopeBaselineCase* opaque) -> std::int32_t {
    const auto& one = *reinterpret_cast<TestBaselineCase*>(opaque);
    algorithm("reference")
        .forward(
            {one.problem, one.x.raw_data(), one.w.raw_data(), nullptr, one.y.raw_data(), nullptr});
    one.y.data<float>()[5] += one.added;
    return 0;
  };
  baseline.read = [](ConvscopeBaselineCase* opaque, void* output) -> std::int32_t {
    const auto& one = *reinterpret_cast<TestBaselineCase*>(opaque);
    std::memcpy(output, one.y.raw_data(), static_cast<std::size_t>(one.y.size_bytes()));
    return 0;
  };
  baseline.implementation = [](ConvscopeBaselineCase*) { return "loops"; };
  baseline.workspace_bytes = [](ConvscopeBaselineCase*) { return std::size_t{3}; };
  baseline.destroy = [](ConvscopeBaselineCase* opaque) {
    delete reinterpret_cast<TestBaselineCase*>(opaque);
  };
  return baseline;
}

TEST(BenchConv2d, TheBaselinesRightVariantsAreTimedAndTheBestCounts) {
  const ConvscopeBaseline baseline = test_baseline();
  Conv2dBenchOptions options = options_with({&algorithm("im2col_gemm")});
  options.baseline = &baseline;
  const auto group = measured(options);
  ASSERT_EQ(group.baseline_rows.size(), 3u);
  EXPECT_EQ(group.baseline_rows[0].wrong, "");
  EXPECT_NE(group.baseline_rows[1].wrong, "");
  EXPECT_EQ(group.baseline_rows[1].time.samples, 0);
  EXPECT_TRUE(group.baseline_rows[2].plain);
  EXPECT_EQ(group.best_baseline(false), &group.baseline_rows[0]);
  EXPECT_EQ(group.best_baseline(true), &group.baseline_rows[2]);
  EXPECT_TRUE(any_wrong({group}));
  ASSERT_EQ(group.refusals.size(), 1u);
  EXPECT_EQ(group.refusals[0].name, "test 1 absent");
  BenchReportSettings settings;
  settings.baseline_name = "test";
  settings.baseline_version = "1";
  const Json all = Json::parse(bench_json({group}, settings));
  const Json& row = all.at("rows").at(0);
  EXPECT_EQ(row["baseline"], "test");
  EXPECT_EQ(row["baseline_version"], "1");
  EXPECT_EQ(all.at("baseline_rows").at(0).at("baseline_version"), "1");
  EXPECT_EQ(row["baseline_median_ms"].get<double>(), group.baseline_rows[0].time.median_ms);
  EXPECT_DOUBLE_EQ(row["ratio_to_baseline"].get<double>(),
                   group.baseline_rows[0].time.median_ms / group.rows[0].time.median_ms);
  EXPECT_EQ(all.at("baseline_rows").size(), 3u);
  EXPECT_TRUE(row["ratio_to_baseline_algorithms"].contains("direct"));
  EXPECT_FALSE(row["ratio_to_baseline_algorithms"].contains("broken"));
  const std::string summary = bench_summary({group, group});
  EXPECT_NE(summary.find("\n  forward im2col_gemm         2 "), std::string::npos) << summary;
  EXPECT_EQ(summary.find("broken"), std::string::npos) << summary;
  EXPECT_EQ(summary.find("ratio to test 1, its median time / ours"), 0u) << summary;
  const std::string table = bench_table(group);
  for (const char* part : {"\n    test 1 direct [loops]", "\n    test 1 direct (plain) [loops]",
                           "\n    test 1 broken: WRONG RESULT"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

TEST(BenchBaseline, AnOldVersionIsRemarkedOn) {
  ConvscopeBaseline baseline = test_baseline();
  baseline.name = "onednn";
  for (const char* old : {"2.6.3", "3.1.9", "2.10"}) {
    baseline.version = old;
    const std::string remark = age_remark(baseline);
    EXPECT_EQ(remark.find(cat("the baseline is only onednn ", old, ", older than 3.2: run ")), 0u)
        << remark;
  }
  for (const char* fresh : {"3.2.0", "3.10.1", "4.0.0", "unknown"}) {
    baseline.version = fresh;
    EXPECT_EQ(age_remark(baseline), "") << fresh;
  }
  baseline.name = "test";
  baseline.version = "1.0";
  EXPECT_EQ(age_remark(baseline), "");
}

TEST(BenchBaseline, AnUnknownOrAbsentOneIsNotAvailable) {
  EXPECT_ERROR(ErrorKind::kUnavailable, "expected a baseline (onednn), got '../evil'",
               open_baseline("../evil"));
  const testing::TemporaryFolder folder;
  setenv("CONVSCOPE_BASELINE_DIR", folder.path().c_str(), 1);
  EXPECT_ERROR(ErrorKind::kUnavailable, "apt-get install libdnnl-dev", open_baseline("onednn"));
  std::ofstream(folder / "libconvscope_baseline_onednn.so") << "no library";
  EXPECT_ERROR(ErrorKind::kUnavailable, "cannot be opened", open_baseline("onednn"));
  unsetenv("CONVSCOPE_BASELINE_DIR");
}

// ---- the program -------------------------------------------------------------------------------

struct Result {
  int code = -1;
  std::string out, err;
};

Result call(const std::string& arguments) {
  // Measured peaks exist, so that no call measures them.
  const testing::CacheFolder cache;
  CpuPeaks peaks;
  peaks.flops = peaks.dram_read = peaks.dram_copy = {1e10, 2e10};
  remember_cpu_peaks(peaks);
  const testing::TemporaryFolder folder;
  const std::string command =
      " " CONVSCOPE_BINARY_DIR "/bin/convscope bench conv2d --min-time 0.0001 " + arguments + " >" +
      (folder / "out") + " 2>" + (folder / "err") + " </dev/null";
  const int status = std::system(command.c_str());
  const auto read = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder / "out"), read(folder / "err")};
}

TEST(BenchCommand, WritesATableJsonAndCsv) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "shapes.txt") << "# two\nh=8,w=8,r=3,s=3\nn=2,c=4,h=5,w=5,k=4\n";
  const Result result = call("--shapes " + (folder / "shapes.txt") +
                             " --algorithm im2col_gemm --direction forward,backward_data"
                             " --threads 1 --json " +
                             (folder / "b.json") + " --csv " + (folder / "b.csv"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("im2col_gemm"), std::string::npos);
  const Json all = Json::parse(std::ifstream(folder / "b.json"));
  EXPECT_EQ(all.at("machine").at("threads"), 1);
  ASSERT_EQ(all.at("rows").size(), 4u);
  for (const char* field :
       {"problem", "direction", "algorithm", "device", "threads", "median_ms", "p10_ms", "p90_ms",
        "prepare_ms", "prepared_bytes", "gflops_effective", "gflops_executed", "roofline_percent",
        "workspace_bytes", "error_ratio", "baseline", "baseline_median_ms", "ratio_to_baseline"}) {
    EXPECT_TRUE(all.at("rows").at(0).contains(field)) << field;
  }
  EXPECT_EQ(all.at("machine").at("peaks").at("flops_per_second").at("one_thread"), 1e10);
  EXPECT_GT(all.at("rows").at(0).at("roofline_percent").get<double>(), 0.0);
  EXPECT_EQ(all.at("rows").at(0).at("problem"), Conv2dProblem::parse("h=8,w=8,r=3,s=3").text());
  std::ifstream csv(folder / "b.csv");
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_TRUE(lines[4].starts_with("\"n=2,c=4,")) << lines[4];
}

// The legend explains every heading of the table.
TEST(BenchCommand, ALegendExplainsEveryColumn) {
  const Result result = call("--problem c=1,h=4,w=4,k=1,r=1,s=1");
  ASSERT_EQ(result.code, 0) << result.err;
  const std::size_t heading = result.out.find("median ms");
  const std::size_t begin = result.out.rfind('\n', heading) + 1;
  std::string columns = result.out.substr(begin, result.out.find('\n', begin) - begin);
  std::string legend = bench_legend(false);
  EXPECT_TRUE(result.out.ends_with(legend)) << result.out;
  std::ranges::replace(legend, '\n', ' ');
  std::size_t at = columns.find("median ms"), count = 0;
  while (at != std::string::npos) {
    const std::size_t end = columns.find("  ", at);
    const std::string column = columns.substr(at, end - at);
    EXPECT_NE(legend.find(column), std::string::npos) << column;
    EXPECT_NE(bench_legend(true).find(column.substr(0, column.find(' '))), std::string::npos);
    at = columns.find_first_not_of(' ', end);
    ++count;
  }
  EXPECT_EQ(count, 13u) << columns;
}

TEST(BenchCommand, NothingButRefusalsIsNotAvailable) {
  const Result result = call("--problem n=1,c=4,h=1,w=1,k=4,r=1,s=1 --algorithm depthwise");
  EXPECT_EQ(result.code, 5);
  EXPECT_NE(result.out.find("depthwise refuses: expects one input channel"), std::string::npos);
  EXPECT_NE(result.err.find("each was refused"), std::string::npos) << result.err;
  EXPECT_EQ(call("--problem n=0,c=4,h=1,w=1,k=4,r=1,s=1 --algorithm depthwise").code, 0);
}

TEST(BenchCommand, MistakesAreOneSentenceAndACode) {
  const std::string kOne = "--problem c=1,h=1,w=1,k=1,r=1,s=1 ";
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "empty.txt") << "#\n";
  const auto expect = [](const std::string& arguments, int code, const std::string& part) {
    const Result result = call(arguments);
    EXPECT_EQ(result.code, code) << arguments << "\n" << result.err;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  };
  expect("", 2, "expected --shapes FILE, --problem");
  expect("--problem n=1,kk=3", 2, "there is no key 'kk'");
  expect("--problem h=2,w=2,r=3,s=3", 2, "expected a kernel that fits the padded image");
  expect("--problem n=1,groups=0", 2, "expected groups of 1");
  expect("--problem n", 2, "has no '='");
  expect("--problem n=1", 2, "because these sizes have no default, got 'n=1' without c, h, w, k");
  expect("--problem c=1,h=4,w=4,k=1,r=3", 2, "got 'c=1,h=4,w=4,k=1,r=3' without s");
  EXPECT_EQ(call("--problem c=1,h=4,w=4,k=1").code, 0);
  expect("--shapes " + (folder / "empty.txt"), 2, "expected at least one problem");
  expect("--shapes " + (folder / "none.txt"), 6, "No such file");
  expect(kOne + "--algorithm im2col_gem", 5, "did you mean 'im2col_gemm'?");
  expect(kOne + "--algorithm all,direct", 2, "expected 'all' by itself");
  expect(kOne + "--direction foward", 2, "did you mean 'forward'?");
  expect(kOne + "--cache hot", 2, "--cache warm or cold");
  expect(kOne + "--clock sun", 2, "--clock wall or cpu");
  expect(kOne + "--clock cpu --threads 2", 2, "--threads 1");
  expect(kOne + "--rounds 0", 2, "--rounds from 1");
  expect(kOne + "--baseline cudn", 5, "expected a baseline (onednn), got 'cudn'");
  expect(kOne + "--device gpu", 2, "expected cpu, cuda or cuda:<index>");
  expect(kOne + "--json " + (folder / "no/such/b.json"), 6, "no/such");
  expect("--problem dtype=f64,c=1,h=1,w=1,k=1,r=1,s=1", 2, "expected elements of type f32");
}

}  // namespace
}  // namespace convscope
