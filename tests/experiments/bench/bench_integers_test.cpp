// SPDX-License-Identifier: Apache-2.0
// bench_integers_test.cpp: tests `convscope bench conv2d` with integer operands. Few of the random
// results are clipped to the integer range, a wrong integer is found, a baseline gets the same
// inputs, and the option --types is accepted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/contender.h"
#include "experiments/check/matrix/integer_case.h"
#include "experiments/cli/cli.h"
#include "tests/support/cache_folder.h"
#include "tests/support/cases.h"
#include "tests/support/some_peaks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

using matrix::with_types;

const Conv2dProblem kBytes =
    with_types(Conv2dProblem::parse("n=2,c=20,h=9,w=9,k=18,r=3,s=3,pad=1"), "u8:i8:i32:u8");

const Conv2dAlgorithm& int8_direct() {
  return conv2d_algorithms(DeviceType::cpu).get("int8_direct");
}

Conv2dBenchGroup measured(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                          const ConvscopeBaseline* baseline = nullptr) {
  Conv2dBenchOptions options;
  options.algorithms = {&algorithm};
  options.min_seconds = 1e-5;
  options.least_samples = 1;
  options.baseline = baseline;
  return bench_conv2d(options, problem, Direction::forward, [](const std::string&) {});
}

// The integers in y must spread over their range. If all of them were clipped to one bound, wrong
// accumulators would still give the right y.
TEST(BenchIntegers, RandomSumsLieWithinTheCodesOfY) {
  for (const char* file : {"resnet18", "mobilenet_v1", "mobilenet_v2", "lenet"}) {
    for (const Conv2dProblem& large : testing::shapes_of(file)) {
      const Conv2dProblem sizes = testing::shrunk(large, 3e6);
      for (const char* types : {"u8:i8:i32:u8", "i8:i8:i32:i8", "i8:i8:i32:u8", "f32:i8:i32:u8"}) {
        const Conv2dProblem problem = with_types(sizes, types);
        const BenchData data(problem, Direction::forward, Device{});
        const SampledReference reference(problem, Direction::forward, data.inputs());
        EXPECT_LT(reference.clipped(), 0.12) << problem.text();
      }
    }
  }
}

TEST(BenchIntegers, EveryTypeIsCheckedAndTimed) {
  for (const char* types :
       {"u8:i8:i32:u8", "i8:i8:i32:i8", "u8:i8:i32:f32", "i8:i8:i32:u8", "u8:i8:i32:i8"}) {
    const auto group = measured(int8_direct(), with_types(kBytes, types));
    ASSERT_EQ(group.rows.size(), 1u) << types;
    EXPECT_EQ(group.rows[0].wrong, "") << types;
    EXPECT_LE(group.rows[0].error_ratio, 1) << types;
    EXPECT_GT(group.rows[0].error_ratio, 0) << types;
    EXPECT_GT(group.rows[0].time.samples, 0) << types;
  }
  const auto first = measured(
      int8_direct(),
      with_types(Conv2dProblem::parse("n=2,c=3,h=19,w=17,k=18,r=5,s=5,stride=2"), "f32:i8:i32:u8"));
  ASSERT_EQ(first.rows.size(), 1u);
  EXPECT_EQ(first.rows[0].wrong, "");
}

// Returns the codes of the first image that is written.
std::uint8_t* codes_of(const Conv2dForwardArgs& args) {
  return static_cast<std::uint8_t*>(args.y) + 5 * kChannelBlock + 3;
}

TEST(BenchIntegers, ACodeThatIsOneOffIsFound) {
  Conv2dAlgorithm wrong = int8_direct();
  wrong.name = "test_wrong";
  wrong.forward = [](const Conv2dForwardArgs& args) {
    int8_direct().forward(args);
    *codes_of(args) ^= 1;
  };
  const auto group = measured(wrong, kBytes);
  ASSERT_EQ(group.rows.size(), 1u);
  // The check allows an error of half a quantisation step. A result that is rounded to the wrong
  // integer has an error of up to one and a half steps.
  EXPECT_NE(group.rows[0].wrong, "");
  EXPECT_GT(group.rows[0].error_ratio, 1);
  EXPECT_LT(group.rows[0].error_ratio, 3.1);
  EXPECT_TRUE(any_wrong({group}));
}

TEST(BenchIntegers, ACodeThatIsNotWrittenIsFound) {
  Conv2dAlgorithm lazy = int8_direct();
  lazy.name = "test_lazy";
  lazy.forward = [](const Conv2dForwardArgs& args) {
    const std::uint8_t before = *codes_of(args);
    int8_direct().forward(args);
    // Correct in the first run, by chance.
    if (before != 0xff) *codes_of(args) = before;
  };
  const auto group = measured(lazy, kBytes);
  ASSERT_EQ(group.rows.size(), 1u);
  EXPECT_NE(group.rows[0].wrong.find("or was not written"), std::string::npos)
      << group.rows[0].wrong;
}

TEST(BenchIntegers, WhatLiesBeyondTheCodesIsTheLastOfThem) {
  const float x[] = {1, 2}, w[] = {10};
  const Conv2dProblem problem = Conv2dProblem::parse("c=1,h=1,w=2,k=1");
  const double bias = -12;
  const Conv2dInputs inputs{x, w, {.bias = &bias, .relu = true, .step = 0.5, .low = 0, .high = 7}};
  const SampledReference reference(problem, Direction::forward, inputs);
  const float right[] = {0, 7}, beyond[] = {0, 8}, below[] = {-1, 7}, half[] = {0.25f, 6.75f};
  EXPECT_EQ(reference.judge(right, 4).error_ratio, 0);
  EXPECT_NE(reference.judge(beyond, 4).wrong, "");
  EXPECT_NE(reference.judge(below, 4).wrong, "");
  EXPECT_NEAR(reference.judge(half, 4).error_ratio, 1, 1e-3);
  EXPECT_EQ(reference.clipped(), 0.5);  // only 8: the ReLU is not an end of the codes
}

// AlgorithmOracle, which the benchmarks of other operators use, clips to the integer range as well.
// Without a bias, the accumulators of this problem exceed this range.
TEST(BenchIntegers, TheAlgorithmOracleClips) {
  const Operands operands = random_operands(kBytes.operands(Direction::forward), Device{});
  const AlgorithmOracle<Conv2dProblem> oracle(kBytes, Direction::forward, operands);
  run_algorithm(int8_direct(), kBytes, Direction::forward, operands);
  const Tensor plain = plain_images(operands.out[0].values, kBytes.y_shape(), kBytes.layout.y);
  std::int64_t zeros = 0;
  for (std::int64_t i = 0; i < plain.numel(); ++i) zeros += plain.at(i) == 0 ? 1 : 0;
  EXPECT_GT(zeros, plain.numel() / 4);
  EXPECT_EQ(oracle.judge(operands, 2).wrong, "");
  for (std::int64_t i = 0; i < operands.out[0].values.numel(); ++i) {
    std::uint8_t& code = operands.out[0].values.data<std::uint8_t>()[i];
    if (code == 0 && i % kChannelBlock == 0) {
      code = 2;
      break;
    }
  }
  EXPECT_NE(oracle.judge(operands, 2).wrong, "");
}

// The expected result uses the rounded images, as the kernel does.
TEST(BenchIntegers, ImagesOfAFirstLayerAreRounded) {
  const Conv2dProblem first =
      with_types(Conv2dProblem::parse("c=3,h=40,w=40,k=8,r=3,s=3"), "f32:i8:i32:u8");
  const OperandSpec spec = first.operands(Direction::forward).inputs[0];
  const Operand x = random_operand(spec, Device{}, 1);
  const Quantisation meaning = x.quantisation();
  ASSERT_NE(meaning.scales, nullptr);
  EXPECT_EQ(meaning.low, -128);
  EXPECT_EQ(meaning.high, 127);
  const Tensor real = real_numbers(x, spec);
  std::set<double> codes;
  for (std::int64_t i = 0; i < real.numel(); ++i) {
    const double code = real.at(i) / meaning.scale(0);
    EXPECT_EQ(code, std::nearbyint(code));
    EXPECT_LE(std::abs(real.at(i) - x.values.at(i)), 0.5 * meaning.scale(0));
    codes.insert(code);
  }
  EXPECT_GT(codes.size(), 100u);
  EXPECT_FALSE(Conv2dProblem().operands(Direction::forward).inputs[0].is_rounded);
}

TEST(BenchIntegers, TheRoofIsThatOfBytes) {
  CpuPeaks peaks = testing::some_peaks();
  peaks.int8 = {400e9, 600e9};
  EXPECT_DOUBLE_EQ(roofline_seconds(peaks, 800e9, 1, 1, false, DType::i8), 2);
  EXPECT_DOUBLE_EQ(roofline_seconds(peaks, 600e9, 1, 2, false, DType::u8), 1);
  EXPECT_DOUBLE_EQ(roofline_seconds(peaks, 100e9, 1, 1, false), 1);
  const auto group = measured(int8_direct(), kBytes);
  const Json row = Json::parse(bench_json({group}, {})).at("rows").at(0);
  EXPECT_EQ(row.at("types"), "u8:i8:i32:u8");
  EXPECT_TRUE(
      bench_csv({group}, {}).substr(0, 2000).find(",wrong,types,impossible,cores_of_others\n") !=
      std::string::npos);
}

// ---- a baseline that computes what its inputs say -----------------------------------------------

struct CodesCase {
  ConvscopeBaselineProblem problem = {};
  std::vector<std::int64_t> x, w;
  std::vector<double> bias, w_scales;
  double x_scale = 0, y_scale = 0;
  bool forgets_bias = false;
  std::vector<std::uint8_t> y;
};

const ConvscopeBaselineVariant kCodesVariants[] = {{"direct", CONVSCOPE_BASELINE_OWN_LAYOUT, 4},
                                                   {"biased", CONVSCOPE_BASELINE_OWN_LAYOUT, 4}};

ConvscopeBaselineCase* create_codes(const ConvscopeBaselineProblem* z, std::int32_t variant,
                                    const ConvscopeBaselineInputs* inputs, char*, std::size_t) {
  EXPECT_EQ(z->x_type, CONVSCOPE_BASELINE_U8);
  EXPECT_EQ(z->w_type, CONVSCOPE_BASELINE_S8);
  EXPECT_EQ(z->y_type, CONVSCOPE_BASELINE_U8);
  EXPECT_EQ(z->relu, 1);
  auto* const out = new CodesCase;
  out->problem = *z;
  out->forgets_bias = variant == 1;
  const auto* const x = static_cast<const std::uint8_t*>(inputs->first);
  const auto* const w = static_cast<const std::int8_t*>(inputs->second);
  out->x.assign(x, x + z->n * z->c * z->h * z->w);
  out->w.assign(w, w + z->k * z->c * z->r * z->s);
  out->bias.assign(inputs->bias, inputs->bias + z->k);
  out->w_scales.assign(inputs->w_scales, inputs->w_scales + z->k);
  out->x_scale = static_cast<double>(*inputs->x_scale);
  out->y_scale = static_cast<double>(*inputs->y_scale);
  out->y.resize(static_cast<std::size_t>(z->n * z->k * z->p * z->q));
  return reinterpret_cast<ConvscopeBaselineCase*>(out);
}

std::uint8_t code_of(const CodesCase& one, std::int64_t flat) {
  const ConvscopeBaselineProblem& z = one.problem;
  const std::int64_t q = flat % z.q, p = flat / z.q % z.p, k = flat / z.q / z.p % z.k;
  const std::int64_t n = flat / z.q / z.p / z.k;
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c < z.c; ++c) {
    for (std::int64_t r = 0; r < z.r; ++r) {
      for (std::int64_t s = 0; s < z.s; ++s) {
        const std::int64_t h = p * z.stride_h - z.pad_top + r, v = q * z.stride_w - z.pad_left + s;
        if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;
        sum += one.x[static_cast<std::size_t>(((n * z.c + c) * z.h + h) * z.w + v)] *
               one.w[static_cast<std::size_t>(((k * z.c + c) * z.r + r) * z.s + s)];
      }
    }
  }
  const auto channel = static_cast<std::size_t>(k);
  const double real = one.x_scale * one.w_scales[channel] * static_cast<double>(sum) +
                      (one.forgets_bias ? 0 : one.bias[channel]);
  return static_cast<std::uint8_t>(
      std::clamp(std::nearbyint(std::max(real, 0.0) / one.y_scale), 0.0, 255.0));
}

TEST(BenchIntegers, ABaselineGetsTheSameCodesAndIsChecked) {
  ConvscopeBaseline baseline{};
  baseline.abi = CONVSCOPE_BASELINE_ABI;
  baseline.name = "codes";
  baseline.version = "1";
  baseline.device = "cpu";
  baseline.variant_count = 2;
  baseline.variants = kCodesVariants;
  baseline.set_threads = [](std::int32_t) {};
  baseline.create = create_codes;
  baseline.run = [](ConvscopeBaselineCase* opaque) -> std::int32_t {
    auto& one = *reinterpret_cast<CodesCase*>(opaque);
    for (std::size_t i = 0; i < one.y.size(); ++i) {
      one.y[i] = code_of(one, static_cast<std::int64_t>(i));
    }
    return 0;
  };
  baseline.read = [](ConvscopeBaselineCase* opaque, void* output) -> std::int32_t {
    const auto& one = *reinterpret_cast<CodesCase*>(opaque);
    std::memcpy(output, one.y.data(), one.y.size());
    return 0;
  };
  baseline.implementation = [](ConvscopeBaselineCase*) { return "loops"; };
  baseline.workspace_bytes = [](ConvscopeBaselineCase*) { return std::size_t{0}; };
  baseline.destroy = [](ConvscopeBaselineCase* opaque) {
    delete reinterpret_cast<CodesCase*>(opaque);
  };
  const auto group = measured(int8_direct(), kBytes, &baseline);
  ASSERT_EQ(group.baseline_rows.size(), 2u);
  EXPECT_EQ(group.baseline_rows[0].wrong, "");
  EXPECT_GT(group.baseline_rows[0].time.samples, 0);
  EXPECT_NE(group.baseline_rows[1].wrong, "");
  EXPECT_EQ(Json::parse(bench_json({group}, {})).at("baseline_rows").at(0).at("types"),
            "u8:i8:i32:u8");
  // Int8 and f32 have separate means.
  const Conv2dAlgorithm& f32 = conv2d_algorithms(DeviceType::cpu).get("direct");
  const auto floats = measured(f32, Conv2dProblem::parse("n=1,c=4,h=4,w=4,k=4"));
  auto with_baseline = floats;
  with_baseline.baseline_rows = group.baseline_rows;
  const std::string summary = bench_summary({group, with_baseline});
  EXPECT_NE(summary.find("forward of bytes int8_direct"), std::string::npos) << summary;
  EXPECT_NE(summary.find("forward direct"), std::string::npos) << summary;
  // Gradients of integers are not requested.
  Conv2dBenchOptions options;
  options.baseline = &baseline;
  const auto gradient =
      bench_conv2d(options, kBytes, Direction::backward_data, [](const std::string&) {});
  ASSERT_EQ(gradient.refusals.size(), 1u);
  EXPECT_EQ(gradient.refusals[0].reason, "computes only the forward pass of integers");
}

// ---- the program -------------------------------------------------------------------------------

struct Result {
  int code = -1;
  std::string out, err;
};

Result call(const std::string& arguments) {
  const testing::CacheFolder cache;
  remember_cpu_peaks(testing::some_peaks());
  const testing::TemporaryFolder folder;
  const std::string command =
      " " CONVSCOPE_BINARY_DIR "/bin/convscope bench conv2d --min-time 0.0001 --rounds 1 " +
      arguments + " >" + (folder / "out") + " 2>" + (folder / "err") + " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, testing::text_of(folder / "out"),
          testing::text_of(folder / "err")};
}

TEST(BenchIntegersCommand, TypesAreThoseOfAWholeFile) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "shapes.txt") << "c=3,h=9,w=9,k=16,r=3,s=3\nc=16,h=5,w=5,k=20\n";
  const Result result = call("--shapes " + (folder / "shapes.txt") +
                             " --types u8:i8:i32:u8 --json " + (folder / "b.json"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("1 layer with at most 4 channels treated as the first of a network: "
                            "f32:i8:i32:u8 in layout nchw:nchw16c"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("the peak of int8 products was not measured"), std::string::npos)
      << result.err;
  const Json rows = Json::parse(std::ifstream(folder / "b.json")).at("rows");
  ASSERT_EQ(rows.size(), 2u);  // only forward
  EXPECT_EQ(rows[0]["types"], "f32:i8:i32:u8");
  EXPECT_EQ(rows[1]["types"], "u8:i8:i32:u8");
  EXPECT_GT(rows[1]["roofline_percent"].get<double>(), 0);
  EXPECT_NE(result.out.find("depthwise, direct, "), std::string::npos);
  EXPECT_NE(result.out.find(" refuse: expects operands of one type"), std::string::npos);
  const Result backward = call("--problem c=16,h=5,w=5,k=16 --types u8:i8:i32:u8 --direction all");
  EXPECT_EQ(backward.code, 0);
  EXPECT_NE(backward.out.find("does not compute backward_data"), std::string::npos);
}

TEST(BenchIntegersCommand, MistakesAreOneSentence) {
  const std::string one = "--problem c=16,h=1,w=1,k=1 ";
  const auto expect = [](const std::string& arguments, const std::string& part) {
    const Result result = call(arguments);
    EXPECT_EQ(result.code, 2) << arguments << "\n" << result.err;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  };
  expect(one + "--types u8", "expected --types of x, w, the sums and y with w of i8");
  expect(one + "--types f32:f32:f32:f32", "with w of i8, as u8:i8:i32:u8, got 'f32:f32:f32:f32'");
  expect(one + "--types u8:i8:i32:u8 --layout nchw", "expected --types without --precision and");
  expect("--ladder direct --types u8:i8:i32:u8", "expected --types with --problem or --shapes");
  expect("--problem c=16,h=1,w=1,k=1,dtype=u8", "or integers as types=u8:i8:i32:u8");
}

}  // namespace
}  // namespace convscope
