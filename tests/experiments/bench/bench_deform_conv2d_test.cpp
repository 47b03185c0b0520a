// SPDX-License-Identifier: Apache-2.0
// bench_deform_conv2d_test.cpp: tests the rows, the files and the oracle of `convscope bench
// deform_conv2d`. No test depends on measured times.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/problem_list.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/cli.h"
#include "layers/deform_conv2d/algorithm.h"
#include "tests/support/cache_folder.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;
using Problem = DeformConv2dProblem;
using DeformAlgorithm = DeformConv2dAlgorithm;

const BenchProgress kSilent = [](const std::string&) {};
const char* const kDeform = "n=2,c=32,h=9,w=11,k=16,r=3,s=3,pad=1,offset_groups=2";

const DeformAlgorithm& deform_algorithm(const char* name) {
  return deform_conv2d_algorithms(DeviceType::cpu).get(name);
}

BenchGroup<Problem> rows_of(const Problem& problem, Direction direction,
                            const std::vector<const DeformAlgorithm*>& algorithms) {
  return bench_operator(BenchSettings{.min_seconds = 1e-4}, problem, direction, algorithms,
                        kSilent);
}

TEST(BenchDeform, TimesEveryAlgorithmThatIsRight) {
  for (const char* more : {"", ",mask=0", ",layout=nchw16c"}) {
    const Problem problem = Problem::parse(std::string(kDeform) + more);
    for (const Direction direction : kDirections) {
      const auto group =
          rows_of(problem, direction, algorithms_named<Problem>("test", "all", Device{}));
      const bool nchw16c = problem.layout == ActivationLayout::nchw16c;
      ASSERT_EQ(group.rows.size() + group.refusals.size(), 2u) << problem.text();
      EXPECT_EQ(group.rows.size(), nchw16c ? 1u : 2u) << problem.text();
      for (const BenchRow& row : group.rows) {
        EXPECT_EQ(row.wrong, "") << row.algorithm << " " << problem.text();
        EXPECT_GT(row.error_ratio, 0) << row.algorithm;  // sums in f32
        EXPECT_LE(row.error_ratio, 1) << row.algorithm;
        EXPECT_GE(row.time.samples, 5);
      }
    }
  }
}

// Runs the reference, applies `change` to its operands, and returns the error ratio that the oracle
// then finds. The oracle computes the expected result in f32 with double accumulators, at the
// sampling positions of the problem.
double ratio_with(const Problem& problem, Direction direction, const Operands& operands,
                  const std::function<void(const Operands&)>& change) {
  const AlgorithmOracle<Problem> oracle(problem, direction, operands);
  run_algorithm(deform_algorithm("reference"), problem, direction, operands);
  change(operands);
  return oracle.judge(operands, 1).error_ratio;
}

TEST(BenchDeform, TheOracleHasThePlacesOfTheProblem) {
  const Problem problem = Problem::parse(kDeform);
  for (const Direction direction : kDirections) {
    const Operands operands = random_operands(problem.operands(direction), Device{});
    const auto nothing = [](const Operands&) {};
    EXPECT_EQ(ratio_with(problem, direction, operands, nothing), 0) << name_of(direction);
  }
  // The offsets lead to positions such as 8 - 2^-30, which f32 rounds to 8. x jumps by 2^20 between
  // two pixels. An oracle that computes positions in f64 would therefore be wrong by 2^-10, for
  // values of size 1.
  const Problem point = Problem::parse("n=1,c=1,h=1,w=16,k=1,r=1,s=1,mask=0");
  Operands operands;
  operands.in[0] = Tensor::zeros({1, 1, 1, 16});
  operands.in[1] = Tensor::full({1, 1, 1, 1}, 1.0);
  operands.in[2] = Tensor::zeros({1, 2, 1, 16});
  operands.out[0] = Tensor::empty({1, 1, 1, 16});
  for (int i = 0; i < 16; ++i) operands.in[0].values.data<float>()[i] = i < 8 ? 0x1p20f : 0;
  for (int q = 0; q < 16; ++q) {
    operands.in[2].values.data<float>()[16 + q] = q == 8 ? -0x1p-30f : 0;
  }
  const AlgorithmOracle<Problem> oracle(point, Direction::forward, operands);
  run_algorithm(deform_algorithm("fused"), point, Direction::forward, operands);
  EXPECT_EQ(operands.out[0].values.at(8), 0);
  EXPECT_EQ(oracle.judge(operands, 1e-6).wrong, "");
}

// The allowed error of an output is proportional to the sum of the magnitudes of the output's
// terms.
TEST(BenchDeform, TheOracleMeasuresByMagnitudes) {
  const Problem problem = Problem::parse(kDeform);
  for (const Direction direction : kDirections) {
    const Operands operands = random_operands(problem.operands(direction), Device{});
    const Operands sizes = Operator<Problem>::magnitudes(problem, direction, [&] {
      Operands out = operands;
      const OperandSpecs specs = problem.operands(direction);
      for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
        out.out[i].values = Tensor::empty(specs.outputs[i].desc.shape);
      }
      return out;
    }());
    for (std::size_t o = 0; o < operands.out.size() && operands.out[o].defined(); ++o) {
      double largest = 0;
      for (std::int64_t i = 0; i < sizes.out[o].values.numel(); ++i) {
        largest = std::max(largest, sizes.out[o].values.at(i));
      }
      // Adds 64 times the allowed error to one element. The addition rounds once, so the measured
      // ratio may differ slightly from 64.
      const double step = 64 * eps_of(problem.dtype, problem.math) * largest;
      const double ratio = ratio_with(problem, direction, operands, [&](const Operands& at) {
        at.out[o].values.data<float>()[3] += static_cast<float>(step);
      });
      EXPECT_NEAR(ratio, 64, 1) << name_of(direction) << ", output " << o;
    }
  }
}

TEST(BenchDeform, AWrongResultIsNotTimed) {
  const Problem problem = Problem::parse(kDeform);
  DeformAlgorithm wrong = deform_algorithm("fused");
  wrong.name = "test_wrong";
  wrong.backward_data = [](const DeformConv2dBackwardDataArgs& args) {
    deform_algorithm("fused").backward_data(args);
    static_cast<float*>(args.dmask)[7] += 0.1f;
  };
  DeformAlgorithm lazy = deform_algorithm("fused");
  lazy.name = "test_lazy";
  lazy.backward_data = [](const DeformConv2dBackwardDataArgs& args) {
    float& first = static_cast<float*>(args.doffset)[0];
    const float before = first;
    deform_algorithm("fused").backward_data(args);
    first = before;  // right only because an earlier run wrote it
  };
  const auto group =
      rows_of(problem, Direction::backward_data, {&wrong, &lazy, &deform_algorithm("fused")});
  ASSERT_EQ(group.rows.size(), 3u);
  EXPECT_EQ(group.rows[0].algorithm, "fused");
  EXPECT_EQ(group.rows[0].wrong, "");
  EXPECT_NE(group.rows[1].wrong.find("at element 7 of mask"), std::string::npos)
      << group.rows[1].wrong;
  EXPECT_NE(group.rows[2].wrong.find("at element 0 of offset, got nan"), std::string::npos)
      << group.rows[2].wrong;
  EXPECT_EQ(group.rows[1].time.samples, 0);
  EXPECT_TRUE(any_wrong({group}));
}

TEST(BenchDeform, TheShapesFileHasMasks) {
  const auto problems =
      problems_of_file<Problem>(CONVSCOPE_SOURCE_DIR "/experiments/shapes/deform.txt");
  ASSERT_EQ(problems.size(), 4u);
  for (const Problem& problem : problems) {
    EXPECT_TRUE(problem.mask);
    EXPECT_EQ(problem.taps(), 9);
    EXPECT_EQ(problem.y_shape(), Shape({problem.n, problem.k, problem.h, problem.w}));
  }
}

class BenchDeformCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    CpuPeaks peaks;
    // Sets measured peaks that no machine reaches, so that no measured time counts as impossible.
    peaks.flops = peaks.dram_read = peaks.dram_copy = {1e13, 2e13};
    remember_cpu_peaks(peaks);  // so that nothing is measured
  }
  // Returns the exit code of `convscope --threads 1 bench deform_conv2d <words>`.
  int call(const std::string& words) {
    std::istringstream in("convscope --threads 1 bench deform_conv2d --min-time 0.0001 " + words);
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

TEST_F(BenchDeformCommand, WritesATableJsonAndCsv) {
  std::ofstream(at("shapes.txt")) << "# two\nn=1,c=4,h=6,w=5,k=4,r=3,s=3,pad=1\n\n" << kDeform;
  ASSERT_EQ(call("--shapes " + at("shapes.txt") + " --algorithm fused,im2col_gemm --direction " +
                 "forward,backward_data --json " + at("b.json") + " --csv " + at("b.csv")),
            0)
      << errors_;
  const std::string text = Problem::parse(kDeform).text();
  EXPECT_NE(out_.find(text + "  backward_data  "), std::string::npos) << out_;
  EXPECT_NE(out_.find("* "), std::string::npos) << out_;
  EXPECT_TRUE(out_.ends_with(bench_legend(false))) << out_;
  const Json all = Json::parse(std::ifstream(at("b.json")));
  EXPECT_EQ(all.at("format"), "convscope bench deform_conv2d 1");
  EXPECT_EQ(all.at("settings").at("threads"), 1);
  ASSERT_EQ(all.at("rows").size(), 8u);
  const Json& last = all.at("rows").at(7);
  EXPECT_EQ(last.at("problem"), text);
  EXPECT_EQ(last.at("direction"), "backward_data");
  EXPECT_EQ(last.at("status"), "ok");
  EXPECT_EQ(last.at("types"), "f32");
  EXPECT_EQ(last.at("nominal_flops"), Problem::parse(kDeform).nominal_flops());
  EXPECT_EQ(last.at("nominal_bytes"), Problem::parse(kDeform).nominal_bytes());
  EXPECT_LE(last.at("error_ratio").get<double>(), 1);
  // The columns are those of a convolution.
  const Json conv = Json::parse(bench_json({[] {
                                             BenchGroup<Conv2dProblem> group;
                                             group.rows.emplace_back();
                                             return group;
                                           }()},
                                           {}));
  EXPECT_EQ(conv.at("format"), "convscope bench conv2d 1");
  for (const auto& [column, value] : conv.at("rows").at(0).items()) {
    EXPECT_TRUE(last.contains(column)) << column;
  }
  std::ifstream csv(at("b.csv"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_TRUE(lines[0].starts_with("problem,direction,algorithm,device,threads,status,"));
  EXPECT_TRUE(lines[8].starts_with("\"" + text + "\",backward_data,")) << lines[8];
}

TEST_F(BenchDeformCommand, TakesBothLayoutsAndTheChoiceOfAutoAlone) {
  ASSERT_EQ(call(cat("--problem ", kDeform, " --layout both --algorithm auto --direction forward",
                     " --weights often --json ", at("b.json"))),
            0)
      << errors_;
  EXPECT_TRUE(out_.ends_with(bench_legend(false) + often_legend())) << out_;
  const Json all = Json::parse(std::ifstream(at("b.json")));
  ASSERT_EQ(all.at("rows").size(), 2u);
  for (const Json& row : all.at("rows")) EXPECT_EQ(row.at("auto_choice"), true);
  EXPECT_NE(all.at("rows").at(1).at("problem").get<std::string>().find("layout=nchw16c"),
            std::string::npos);
}

TEST_F(BenchDeformCommand, MistakesAreOneSentenceAndACode) {
  const std::string one = "--problem c=1,h=4,w=4,k=1,r=1,s=1 ";
  std::ofstream(at("bad.txt")) << "# one\n\nn=1,c=4,h=6,w=5,k=4,offset_groups=3\n";
  const auto expect = [&](const std::string& arguments, int code, const std::string& part) {
    EXPECT_EQ(call(arguments), code) << arguments << "\n" << errors_;
    EXPECT_EQ(out_, "") << arguments;
    EXPECT_TRUE(errors_.starts_with("error: ")) << errors_;
    EXPECT_NE(errors_.find(part), std::string::npos) << errors_;
    EXPECT_EQ(std::ranges::count(errors_, '\n'), 1) << errors_;
  };
  expect("", 2, "[bench deform_conv2d] expected --shapes FILE or --problem");
  expect("--problem n=1,mask=2,c=1,h=1,w=1,k=1", 2, "expected 'mask' of a problem to be 0 or 1");
  expect("--problem n=1,masks=1,c=1,h=1,w=1,k=1", 2,
         "; a deformable convolution also has the keys offset_groups and mask");
  expect("--shapes " + at("absent.txt"), 6, "; those of the source are in experiments/shapes");
  expect("--problem c=1,h=4,w=4", 2, "[bench deform_conv2d] expected --problem with c, h, w and k");
  expect("--shapes " + at("bad.txt"), 2, "bad.txt:3: ");
  expect(one + "--algorithm fuse", 5, "did you mean 'fused'?");
  expect(one + "--algorithm winograd", 5,
         "(fused, fused_lesson, im2col_gemm, reference), got 'winograd'");
  expect(one + "--direction foward", 2, "did you mean 'forward'?");
  expect(one + "--cache hot", 2, "--cache warm or cold");
  expect(one + "--rounds 0", 2, "--rounds from 1");
  expect(one + "--device gpu", 2, "expected cpu, cuda or cuda:<index>");
  expect(one + "--json " + at("no/such/b.json"), 6, "no/such");
  expect("--problem dtype=f64,c=1,h=1,w=1,k=1", 2, "expected elements of type f32");
  expect(one + "--precision tf32", 2, "or tf32, f16 or bf16 on cuda");
}

TEST_F(BenchDeformCommand, ABatchOfNoImagesIsSkipped) {
  EXPECT_EQ(call("--problem n=0,c=1,h=4,w=4,k=1"), 0) << errors_;
  EXPECT_NE(out_.find("skipped: a batch of no samples leaves nothing to time"), std::string::npos);
}

}  // namespace
}  // namespace convscope::testing
