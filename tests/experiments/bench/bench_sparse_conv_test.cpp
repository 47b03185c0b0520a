// SPDX-License-Identifier: Apache-2.0
// bench_sparse_conv_test.cpp: tests synthetic point clouds, and the rows, the files and the oracle
// of `convscope bench sparse_conv`. No test depends on measured times.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/bench/algorithm_oracle.h"
#include "experiments/bench/problem_list.h"
#include "experiments/bench/sparse/sparse_bench.h"
#include "experiments/bench/sparse/sparse_oracle.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/cli.h"
#include "experiments/compare/bench_sides.h"
#include "experiments/report/plot_kind.h"
#include "tests/support/cache_folder.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;
using Problem = SparseConvProblem;

const BenchProgress kSilent = [](const std::string&) {};
constexpr const char* kShell = "cloud=shell,sites=700,seed=3,kernel=3x3x3,c=5,k=7";

const SparseConvAlgorithm& algorithm_called(const char* name) {
  return sparse_conv_algorithms(DeviceType::cpu).get(name);
}

double pairs_per_site(const DrawnCloud& cloud) {
  const SparseKernel kernel{.size = {cloud.rank() == 3 ? 3 : 1, 3, 3}};
  return static_cast<double>(SparseMap::submanifold(cloud_sites(cloud), kernel)->pairs()) /
         static_cast<double>(cloud.sites);
}

// ---- clouds -------------------------------------------------------------------------------------

TEST(Clouds, HaveTheSitesThatTheyAreAskedForAndTheSameAgain) {
  for (const CloudShape shape : kCloudShapes) {
    for (const std::int64_t sites : {1, 2, 17, 3000}) {
      const DrawnCloud cloud{.shape = shape, .sites = sites, .seed = 5};
      const SharedSites first = cloud_sites(cloud);
      EXPECT_EQ(first->count(), sites) << cloud.text();
      EXPECT_EQ(first->keys(), cloud_sites(cloud)->keys()) << cloud.text();
      EXPECT_EQ(first->grid().rank, cloud.rank());
    }
  }
}

TEST(Clouds, OfAnotherSeedAreOtherClouds) {
  for (const CloudShape shape : kCloudShapes) {
    if (shape == CloudShape::full) continue;
    EXPECT_NE(cloud_sites({.shape = shape, .sites = 500, .seed = 1})->keys(),
              cloud_sites({.shape = shape, .sites = 500, .seed = 2})->keys())
        << name_of(shape);
  }
}

// The synthetic clouds `shell`, `room` and `lidar` have about as many neighbours per site as real
// surfaces and scans, for any number of sites.
TEST(Clouds, HaveTheNeighboursThatTheirNamePromises) {
  for (const std::int64_t sites : {20000, 100000}) {
    EXPECT_NEAR(pairs_per_site({.shape = CloudShape::shell, .sites = sites}), 12.5, 0.2);
    EXPECT_NEAR(pairs_per_site({.shape = CloudShape::room, .sites = sites}), 17.3, 1.0);
  }
  EXPECT_NEAR(pairs_per_site({.shape = CloudShape::lidar, .sites = 100000}), 4.6, 0.3);
  // A pair is an output site and an input site in its window. Each site forms a pair with itself.
  // Each position around it is a site with probability `density` and then forms a pair, too. Sites
  // at the faces of the cube have fewer positions around them.
  for (const double density : {0.1, 0.5}) {
    const DrawnCloud cloud{.shape = CloudShape::random, .sites = 20000, .density = density};
    const SharedSites sites = cloud_sites(cloud);
    EXPECT_NEAR(sites->density(), density, 0.05 * density);
    double around = 1;
    for (const std::int64_t side : sites->grid().extent)
      around *= 3 - 2.0 / static_cast<double>(side);
    around -= 1;
    EXPECT_NEAR(pairs_per_site(cloud), 1 + around * sites->density(), 0.1);
  }
  EXPECT_NEAR(pairs_per_site({.shape = CloudShape::full, .sites = 8000}), std::pow(3 - 2 / 20.0, 3),
              1e-9);
}

TEST(Clouds, ScenesShareTheSites) {
  const SharedSites sites =
      cloud_sites({.shape = CloudShape::shell, .sites = 1001, .seed = 1, .batch = 2});
  EXPECT_EQ(sites->grid().batch, 2);
  std::vector<std::int64_t> counts(2, 0);
  for (std::int64_t i = 0; i < sites->count(); ++i) {
    ++counts[static_cast<std::size_t>(sites->place(i).batch)];
  }
  EXPECT_EQ(counts, (std::vector<std::int64_t>{500, 501}));
}

// ---- problems -----------------------------------------------------------------------------------

TEST(CloudProblems, ParseBackFromTheirText) {
  for (const char* name : {"sparse.txt", "sparse_other.txt"}) {
    const auto problems = problems_of_file<CloudProblem>(
        std::string(CONVSCOPE_SOURCE_DIR "/experiments/shapes/") + name);
    EXPECT_GE(problems.size(), 6u);
    for (const CloudProblem& problem : problems) {
      EXPECT_EQ(CloudProblem::parse(problem.text()), problem) << problem.text();
    }
  }
  for (const char* text :
       {kShell, "cloud=ink,sites=9,seed=1,kernel=1x3,c=1,k=2,dtype=f16,precision=tf32",
        "cloud=random,sites=50,seed=1,density=0.123456789,batch=2,kind=strided,kernel=2x2x2,c=3,k="
        "4",
        "cloud=full,sites=8,seed=0,kind=inverse,kernel=3x3x3,stride=2x1x2,pad=1x1x1,c=3,k=4"}) {
    EXPECT_EQ(CloudProblem::parse(text).text(), text);
  }
  EXPECT_EQ(CloudProblem::parse("cloud=shell,sites=9,kernel=3,stride=2,pad=1,c=1,k=1").text(),
            "cloud=shell,sites=9,seed=1,kernel=3x3x3,stride=2x2x2,pad=1x1x1,c=1,k=1");
}

TEST(CloudProblems, MistakesAreOneSentence) {
  const auto expect = [](const std::string& text, const std::string& part) {
    try {
      CloudProblem::parse(text);
      FAIL() << "parsed " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const std::string base = "cloud=shell,sites=9,kernel=3x3x3,c=1,k=1";
  expect("", "has no '='");
  expect("sites=9,kernel=3,c=1,k=1", "'cloud' has no default");
  expect("cloud=shell,kernel=3,c=1,k=1", "'sites' has no default");
  expect("cloud=shel,sites=9,kernel=3,c=1,k=1", "did you mean 'shell'?");
  expect(base + ",sead=1", "did you mean 'seed'?");
  expect(base + ",c=2", "'c' occurs twice");
  expect(base + ",seed=x", "'seed=x' is not a number");
  expect(base + ",seed=-1", "a seed of at least 0, got -1");
  expect(base + ",dilation=1x2", "'dilation' takes one number or 3");
  expect(base + ",density=0.1", "'density' belongs to cloud=random");
  expect(base + ",kind=submanifold,stride=2", "takes neither stride nor padding");
  expect("cloud=ink,sites=9,kernel=3x3x3,c=1,k=1", "'kernel' takes one number or 2");
  expect("cloud=ink,sites=9,batch=2,kernel=3,c=1,k=1", "expected no batch with cloud=ink");
  expect("cloud=shell,sites=0,kernel=3,c=1,k=1", "expected sites from 1 to");
  expect("cloud=shell,sites=99999999999,kernel=3,c=1,k=1", "expected sites from 1 to");
  expect("cloud=random,sites=9,density=2,kernel=3,c=1,k=1", "a density above 0 and at most 1");
  expect("cloud=random,sites=9,density=1e-30,kernel=3,c=1,k=1", "at most 2^40 places");
  expect("cloud=shell,sites=9,kernel=2,c=1,k=1", "expected odd sizes");
  expect("cloud=shell,sites=9,kernel=9,c=1,k=1", "expected kernel sizes from 1 to 7");
  expect("cloud=shell,sites=9,kernel=0,c=1,k=1", "expected kernel sizes of at least 1");
  expect("cloud=shell,sites=9,kernel=3,stride=0,c=1,k=1", "expected strides and dilations");
  expect("cloud=shell,sites=9,kernel=3,c=0,k=1", "at least one channel");
}

// ---- the oracle ---------------------------------------------------------------------------------

constexpr const char* kKinds[] = {
    kShell, "cloud=room,sites=300,seed=1,kernel=3x3x3,stride=2,pad=1,c=4,k=3",
    "cloud=ink,sites=400,seed=1,kind=inverse,kernel=3x3,stride=2,pad=1,c=3,k=6"};

// On a small problem, the sampled oracle and a full comparison with the algorithm `reference` give
// the same verdict.
TEST(SparseOracle, SaysOfASmallProblemWhatTheReferenceSays) {
  for (const char* text : kKinds) {
    const CloudProblem cloud = CloudProblem::parse(text);
    const Problem problem = cloud.on(cloud.map());
    for (const Direction direction : kDirections) {
      const Operands operands = random_operands(problem.operands(direction), Device{});
      run_algorithm(algorithm_called("implicit_gemm"), problem, direction, operands);
      const SparseOracle oracle(problem, direction, operands);
      EXPECT_EQ(oracle.looked_at(), operands.out[0].values.numel());
      const Judgement right =
          AlgorithmOracle<Problem>(problem, direction, operands).judge(operands, 9);
      const Judgement got = oracle.judge(operands, 9);
      EXPECT_EQ(got.wrong, "");
      EXPECT_NEAR(got.error_ratio, right.error_ratio, 1e-6) << text << name_of(direction);
      EXPECT_GT(got.error_ratio, 0);
    }
  }
}

TEST(SparseOracle, FindsAWrongElementAndANumberThatIsNone) {
  for (const char* text : kKinds) {
    const CloudProblem cloud = CloudProblem::parse(text);
    const Problem problem = cloud.on(cloud.map());
    for (const Direction direction : kDirections) {
      const Operands operands = random_operands(problem.operands(direction), Device{});
      run_algorithm(algorithm_called("reference"), problem, direction, operands);
      // On a large problem, the oracle checks a sample of the elements, which always includes the
      // last element.
      const SparseOracle some(problem, direction, operands, /*most_products=*/1);
      EXPECT_LT(some.looked_at(), operands.out[0].values.numel()) << text << name_of(direction);
      EXPECT_EQ(some.judge(operands, 1).wrong, "");
      float* const values = operands.out[0].values.data<float>();
      const std::int64_t last = operands.out[0].values.numel() - 1;
      const float before = values[last];
      values[last] += 0.01f;
      EXPECT_NE(some.judge(operands, 1).wrong, "");
      EXPECT_GT(some.judge(operands, 1).error_ratio, 1);
      values[last] = before;
      for (std::int64_t i = 0; i <= last; ++i) {  // any element
        const float kept = values[i];
        values[i] = NAN;
        ASSERT_NE(some.judge(operands, 1).wrong, "") << i;
        values[i] = kept;
      }
    }
  }
}

TEST(SparseOracle, NamesThePlace) {
  const CloudProblem cloud = CloudProblem::parse(kShell);
  const Problem problem = cloud.on(cloud.map());
  const auto wrong_at = [&](Direction direction, std::int64_t at) {
    const Operands operands = random_operands(problem.operands(direction), Device{});
    run_algorithm(algorithm_called("reference"), problem, direction, operands);
    operands.out[0].values.data<float>()[at] += 1;
    return SparseOracle(problem, direction, operands).judge(operands, 1).wrong;
  };
  EXPECT_NE(wrong_at(Direction::forward, 7 * 4 + 2).find("at row 4, channel 2 of y"),
            std::string::npos);
  EXPECT_NE(wrong_at(Direction::backward_data, 5 * 6 + 1).find("at row 6, channel 1 of x"),
            std::string::npos);
  EXPECT_NE(wrong_at(Direction::backward_weight, (3 * 5 + 2) * 27 + 11)
                .find("at channels 3 and 2, tap 11 of w"),
            std::string::npos);
}

TEST(BenchSparse, AWrongResultIsNotTimed) {
  const CloudProblem cloud = CloudProblem::parse(kShell);
  const CloudMap map(cloud, false);
  SparseConvAlgorithm wrong = algorithm_called("native");
  wrong.name = "test_wrong";
  wrong.forward = [](const SparseConvForwardArgs& args) {
    algorithm_called("reference").forward(args);
    static_cast<float*>(args.y)[9] += 0.1f;
  };
  wrong.prepared_bytes = nullptr;
  const ReportedGroup group =
      bench_cloud(BenchSettings{.min_seconds = 1e-4}, cloud, map, Direction::forward,
                  {&wrong, &algorithm_called("native")}, kSilent);
  ASSERT_EQ(group.rows.size(), 2u);
  EXPECT_EQ(group.rows[0].algorithm, "native");
  EXPECT_EQ(group.rows[0].wrong, "");
  EXPECT_NE(group.rows[1].wrong, "");
  EXPECT_EQ(group.rows[1].time.samples, 0);
}

// An algorithm that multiplies zeros reports the FLOPs that it executes. The row shows the ratio of
// executed to needed FLOPs.
TEST(BenchSparse, ProductsThatAreExecutedStandBesideThoseThatCount) {
  const CloudProblem cloud = CloudProblem::parse(kShell);
  SparseConvAlgorithm wasteful = algorithm_called("native");
  wasteful.cost = [](const Problem& z, Direction) -> Cost {
    return {.flops = 1.75 * z.nominal_flops(), .bytes = z.nominal_bytes()};
  };
  const ReportedGroup group =
      bench_cloud(BenchSettings{.min_seconds = 1e-4}, cloud, CloudMap(cloud, false),
                  Direction::forward, {&wasteful}, kSilent);
  EXPECT_EQ(group.rows.at(0).executed_per_useful, 1.75);
  EXPECT_NE(bench_table(group).find("  1.75x\n"), std::string::npos) << bench_table(group);
}

// ---- the command --------------------------------------------------------------------------------

class BenchSparseCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    CpuPeaks peaks;
    // Sets measured peaks that no machine reaches, so that no measured time counts as impossible.
    peaks.flops = peaks.dram_read = peaks.dram_copy = {1e13, 2e13};
    remember_cpu_peaks(peaks);  // so that nothing is measured
  }
  // Returns the exit code of `convscope --threads 1 bench sparse_conv <words>`.
  int call(const std::string& words) {
    std::istringstream in("convscope --threads 1 bench sparse_conv --min-time 0.0001 " + words);
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
  std::string at(const char* name) const { return folder_ / name; }

  const MachineScope scope_;
  const CacheFolder cache_;
  TemporaryFolder folder_;
  std::string out_, errors_;
};

TEST_F(BenchSparseCommand, WritesATableJsonAndCsvThatTheReadersTake) {
  std::ofstream(at("shapes.txt")) << "# two\n" << kShell << "\n\n" << kKinds[1] << "\n";
  ASSERT_EQ(call("--shapes " + at("shapes.txt") + " --algorithm native,implicit_gemm --direction " +
                 "forward,backward_weight --json " + at("b.json") + " --csv " + at("b.csv")),
            0)
      << errors_;
  EXPECT_NE(out_.find(std::string(kShell) + "  backward_weight  "), std::string::npos) << out_;
  EXPECT_TRUE(out_.ends_with(bench_legend(false) + sparse_legend())) << out_;
  const Json all = Json::parse(std::ifstream(at("b.json")));
  EXPECT_EQ(all.at("format"), "convscope bench sparse_conv 1");
  ASSERT_EQ(all.at("rows").size(), 8u);
  const Json& first = all.at("rows").at(0);
  const CloudProblem cloud = CloudProblem::parse(kShell);
  const Problem problem = cloud.on(cloud.map());
  EXPECT_EQ(first.at("problem"), kShell);
  EXPECT_EQ(first.at("status"), "ok");
  EXPECT_EQ(first.at("sites"), 700);
  EXPECT_EQ(first.at("out_sites"), 700);
  EXPECT_EQ(first.at("pairs"), problem.map->pairs());
  EXPECT_NEAR(first.at("pairs_per_site").get<double>(),
              static_cast<double>(problem.map->pairs()) / 700, 1e-9);
  EXPECT_EQ(first.at("density"), problem.map->in_sites()->density());
  EXPECT_EQ(first.at("map_bytes_per_site"), 36);
  EXPECT_GT(first.at("map_ms").get<double>(), 0);
  EXPECT_EQ(first.at("executed_per_useful"), 1);
  EXPECT_EQ(first.at("nominal_flops"), 2.0 * static_cast<double>(problem.map->pairs()) * 5 * 7);
  EXPECT_LT(all.at("rows").at(7).at("out_sites"), all.at("rows").at(7).at("sites"));
  std::ifstream csv(at("b.csv"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_TRUE(lines[0].ends_with(
      ",types,sites,out_sites,pairs,pairs_per_site,density,"
      "map_bytes_per_site,map_ms,executed_per_useful,impossible,cores_of_others"))
      << lines[0];
  // Each row has as many cells as the header. Only the text of the problem contains commas, so this
  // text is quoted.
  EXPECT_EQ(std::ranges::count(lines[1], ','), std::ranges::count(lines[0], ',') + 5);

  const BenchSide side = read_bench_side(at("b.json"));
  EXPECT_EQ(side.kind, "sparse_conv");
  EXPECT_EQ(side.rows.size(), 8u);
  const BenchSet set = read_bench({at("b.json")});
  ASSERT_EQ(set.problems.size(), 2u);
  EXPECT_EQ(set.problems[0].nominal_flops(), problem.nominal_flops());
  EXPECT_EQ(set.problems[0].nominal_bytes(), problem.nominal_bytes());
  EXPECT_EQ(set.names[0], "700 shell 5 \u2192 7, 3\u00D73\u00D73");
  EXPECT_EQ(set.names[1], "300 room 4 \u2192 3, 3\u00D73\u00D73 strided");
  const DrawnPlots drawn = draw_plots(set, {"heatmap", "roofline", "workspace"});
  EXPECT_EQ(drawn.plots.size(), 3u) << join(drawn.left_out);
}

TEST_F(BenchSparseCommand, TakesTheChoiceOfAutoAlone) {
  ASSERT_EQ(
      call(cat("--problem ", kShell, " --algorithm auto --weights often --json ", at("b.json"))), 0)
      << errors_;
  const Json all = Json::parse(std::ifstream(at("b.json")));
  ASSERT_EQ(all.at("rows").size(), 3u);
  for (const Json& row : all.at("rows")) EXPECT_EQ(row.at("auto_choice"), true);
}

TEST_F(BenchSparseCommand, MistakesAreOneSentenceAndACode) {
  std::ofstream(at("bad.txt")) << "# one\n\ncloud=shell,sites=9,kernel=4,c=1,k=1\n";
  const auto expect = [&](const std::string& arguments, int code, const std::string& part) {
    EXPECT_EQ(call(arguments), code) << arguments << "\n" << errors_;
    EXPECT_EQ(out_, "") << arguments;
    EXPECT_TRUE(errors_.starts_with("error: ")) << errors_;
    EXPECT_NE(errors_.find(part), std::string::npos) << errors_;
    EXPECT_EQ(std::ranges::count(errors_, '\n'), 1) << errors_;
  };
  const std::string one = cat("--problem ", kShell, " ");
  expect("", 2, "[bench sparse_conv] expected --shapes FILE or --problem");
  expect("--shapes " + at("bad.txt"), 2, "bad.txt:3: ");
  expect("--shapes /nonexistent.txt", 6, "expected a readable file of shapes");
  expect(one + "--algorithm nativ", 5, "did you mean 'native'?");
  expect(one + "--direction forwards", 2, "did you mean 'forward'?");
  expect(one + "--precision f16", 2, "f16 or bf16 on cuda, got cloud=shell");
  expect(one + "--clock sun", 2, "--clock wall or cpu");
  expect(one + "--json /nonexistent/b.json", 6, "/nonexistent");
}

}  // namespace
}  // namespace convscope::testing
