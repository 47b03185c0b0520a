// SPDX-License-Identifier: Apache-2.0
// operator_test.cpp: tests that an operator which only the tests define (correlation1d.h) gets
// everything that layers/dispatch promises.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "framework/machine/peaks.h"
#include "layers/dispatch/choice_cache.h"
#include "layers/dispatch/operator_use.h"
#include "tests/layers/dispatch/correlation1d.h"
#include "tests/support/cache_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

const Device kCpu;
const Correlation1dProblem kProblem{.n = 2, .c = 4, .length = 19, .k = 8, .taps = 3};
const OperandTypes kIntegers{DType::i8, DType::i8, DType::i32, DType::f32};

Correlation1dProblem integer_problem() {
  Correlation1dProblem out = kProblem;
  out.dtype = DType::i8;
  out.types = kIntegers;
  return out;
}
Correlation1dProblem sparse(DType dtype = DType::f32) {
  Correlation1dProblem out = kProblem;
  out.dtype = dtype;
  EXPECT_TRUE(WeightFormat::parse("blocks4x2:5", out.weight_format));
  return out;
}

const CorrelationAlgorithm& algorithm(const std::string& name) {
  return Operator<Correlation1dProblem>::algorithms(DeviceType::cpu).get(name);
}

class Operators : public ::testing::Test {
 protected:
  void SetUp() override { register_correlation(); }

  static std::string chosen(const std::string& policy, const Correlation1dProblem& problem,
                            Direction direction = Direction::forward) {
    return select_algorithm(policy, problem, direction, kCpu).algorithm->name;
  }
};

TEST_F(Operators, AutoTakesTheLowestEstimate) {
  EXPECT_EQ(chosen("auto", kProblem), "sliding");
  // No other algorithm computes this direction.
  EXPECT_EQ(chosen("auto", kProblem, Direction::backward_weight), "reference");
}

TEST_F(Operators, ErrorsSpeakOfTheOperation) {
  EXPECT_ERROR(ErrorKind::kUnavailable, "[correlation1d] expected auto, measure, check:<a>,<b>",
               chosen("slidin", kProblem));
  EXPECT_ERROR(ErrorKind::kUnavailable, "got 'slidin'; did you mean 'sliding'?",
               chosen("slidin", kProblem));
  EXPECT_ERROR(ErrorKind::kUnavailable,
               "'sliding' does not compute backward_weight; these accept it: reference",
               chosen("sliding", kProblem, Direction::backward_weight));
  EXPECT_ERROR(ErrorKind::kUnavailable, "did you mean 'measure'?",
               check_policy("correlation1d", "mesure", kCpu, {"reference", "sliding"}));
}

TEST_F(Operators, ExplainGivesAVerdictForEveryAlgorithm) {
  const auto verdicts = explain("auto", kProblem, Direction::forward, kCpu);
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_EQ(verdicts[0].algorithm, "sliding");
  EXPECT_TRUE(verdicts[0].chosen);
  EXPECT_EQ(verdicts[0].workspace_bytes, 8 * sizeof(float));
  EXPECT_EQ(verdicts[0].prepared_bytes, 8 * 4 * 3 * sizeof(float));
  EXPECT_FALSE(verdicts[1].chosen);
  EXPECT_EQ(verdicts[1].reason, "auto takes it only as a last resort");
}

TEST_F(Operators, MeasureTimesOnceAndRemembersUnderTheOperation) {
  const CacheFolder folder;
  EXPECT_EQ(chosen("measure", kProblem), "sliding");
  const std::string path = measure_cache_path("correlation1d", kCpu);
  EXPECT_EQ(path, folder.path() + "/correlation1d_cpu.json");
  std::ifstream file(path);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(content.find("convscope correlation1d measurements 1"), std::string::npos) << content;
  EXPECT_NE(content.find(kProblem.text()), std::string::npos) << content;
  CacheFolder::forget();
  const CorrelationAlgorithm* known =
      measured<Correlation1dProblem>(question_of(kProblem, Direction::forward, kCpu));
  ASSERT_NE(known, nullptr);
  EXPECT_STREQ(known->name, "sliding");
  EXPECT_TRUE(explain("measure", kProblem, Direction::forward, kCpu)[0].chosen);
}

TEST_F(Operators, MeasureBelievesTheSeconds) {
  const CacheFolder folder;
  const SecondsOf real = timing_of(kProblem, Direction::forward, kCpu, WeightUse::once);
  EXPECT_GT(real("sliding"), 0.0);
  EXPECT_GT(real("reference"), 0.0);
  const MeasureKey key{"correlation1d", "a problem", Direction::forward, kCpu};
  int timed = 0;
  const auto timing = [&]() -> SecondsOf {
    ++timed;
    return [](const std::string& name) { return name == "b" ? 1.0 : 2.0; };
  };
  EXPECT_EQ(measured_fastest(key, {"a", "b", "c"}, timing), "b");
  EXPECT_EQ(measured_fastest(key, {"a", "b", "c"}, timing), "b");
  EXPECT_EQ(timed, 1);
  EXPECT_EQ(measured_fastest(key, {"a", "c"}, timing), "a");  // b is missing: timed again
  EXPECT_EQ(timed, 2);
}

TEST_F(Operators, CheckComparesTwoAlgorithms) {
  for (const Correlation1dProblem& problem : {kProblem, integer_problem(), sparse()}) {
    const Operands operands = random_operands(problem.operands(Direction::forward), kCpu);
    const auto choice =
        select_algorithm("check:sliding,reference", problem, Direction::forward, kCpu);
    execute(choice, problem, Direction::forward, operands);
    CorrelationAlgorithm wrong = sliding_algorithm();
    wrong.name = "wrong";
    wrong.forward = [](const CorrelationForwardArgs& args) {
      sliding_forward(args);
      static_cast<float*>(args.y)[7] += 0.01f;
    };
    EXPECT_ERROR(ErrorKind::kRun, "[correlation1d] expected 'sliding' and 'wrong' to agree within",
                 execute({choice.algorithm, &wrong}, problem, Direction::forward, operands));
  }
}

// Returns the largest error of an algorithm, compared with a dense computation in f64 on the real
// numbers that its operands represent.
double largest_error(const CorrelationAlgorithm& tried, const Correlation1dProblem& problem,
                     Direction direction) {
  const OperandSpecs specs = problem.operands(direction);
  const Operands operands = random_operands(specs, kCpu);
  run_algorithm(tried, problem, direction, operands);
  Correlation1dProblem real = problem;
  real.dtype = DType::f64;
  real.types.reset();
  real.weight_format = {};
  Operands right = random_operands(real.operands(direction), kCpu);
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    right.in[i] = real_numbers(operands.in[i], specs.inputs[i]);
  }
  run_algorithm(algorithm("reference"), real, direction, right);
  const Tensor got = real_numbers(operands.out[0], specs.outputs[0]);
  double largest = 0;
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    // Weights outside the kept blocks have no gradient.
    if (!specs.outputs[0].desc.sparsity.is_dense() && got.at(i) == 0) continue;
    largest = std::max(largest, std::abs(got.at(i) - right.out[0].values.at(i)));
  }
  return largest;
}

// Bounds: a sum of 12 products of normal numbers has an error below 12 eps / 2 * 12 * 16. Sums of
// integers are exact and then rounded three times, with |y| < 12 * 136 * 127 * (2 / 64)^2 < 256.
TEST_F(Operators, AlgorithmsTakeTypedOperandsWithScales) {
  EXPECT_LE(largest_error(algorithm("sliding"), integer_problem(), Direction::forward),
            256 * 0x1p-22);
  EXPECT_LE(largest_error(algorithm("reference"), integer_problem(), Direction::forward),
            256 * 0x1p-23);
  const Operands operands = random_operands(integer_problem().operands(Direction::forward), kCpu);
  const OperandViews views = operands.views(Direction::forward);
  EXPECT_TRUE(views.w.per_channel);
  EXPECT_FALSE(views.x.per_channel);
  EXPECT_NE(views.x.zero_point(0), 0);
  EXPECT_NE(views.w.scale(0), views.w.scale(1));
  EXPECT_EQ(views.y.scales, nullptr);  // f32: the numbers themselves
}

TEST_F(Operators, AlgorithmsTakeBlockSparseWeights) {
  constexpr double kBound = 12 * 0x1p-24 * 12 * 16;
  EXPECT_LE(largest_error(algorithm("sliding"), sparse(), Direction::forward), kBound);
  for (const Direction direction : kDirections) {
    EXPECT_LE(largest_error(algorithm("reference"), sparse(DType::f64), direction), 1e-12);
  }
  const OperandSpec w = sparse().operands(Direction::forward).inputs[1];
  const Operand weights = random_operand(w, kCpu, 3);
  EXPECT_EQ(weights.values.shape(), (Shape{5, 4, 2}));
  const Tensor dense = real_numbers(weights, w);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < dense.numel(); ++i) kept += dense.at(i) != 0 ? 1 : 0;
  EXPECT_EQ(kept, 5 * 4 * 2);
}

TEST_F(Operators, AAlgorithmIsNotAskedAboutTypesAndFormatsItDoesNotKnow) {
  CorrelationAlgorithm plain = sliding_algorithm();
  plain.takes_mixed_types = plain.takes_sparse_weights = false;
  EXPECT_EQ(support_of(plain, integer_problem(), Direction::forward).reason,
            "expects operands of one type, got i8:i8:i32:f32");
  EXPECT_EQ(support_of(plain, sparse(), Direction::forward).reason,
            "expects dense weights, got blocks4x2:5");
  EXPECT_TRUE(support_of(plain, kProblem, Direction::forward).yes);
}

TEST_F(Operators, NoKernelIsCalledWithoutSamples) {
  Correlation1dProblem empty = kProblem;
  empty.n = 0;
  CorrelationAlgorithm never = reference_algorithm();
  never.forward = [](const CorrelationForwardArgs&) { FAIL() << "called"; };
  never.backward_weight = [](const CorrelationBackwardWeightArgs&) { FAIL() << "called"; };
  run_algorithm(never, empty, Direction::forward,
                random_operands(empty.operands(Direction::forward), kCpu));
  for (const bool accumulate : {false, true}) {
    Operands operands = random_operands(empty.operands(Direction::backward_weight), kCpu);
    operands.out[0].values.fill(3);
    operands.accumulate = accumulate;
    execute({&never, &never}, empty, Direction::backward_weight, operands);
    EXPECT_EQ(operands.out[0].values.at(5), accumulate ? 3.0 : 0.0);
  }
  const CacheFolder folder;
  EXPECT_EQ(chosen("measure", empty), "sliding");  // without timing
  for (const Verdict& one : explain("auto", empty, Direction::forward, kCpu)) {
    EXPECT_TRUE(one.accepts) << one.algorithm;
    EXPECT_EQ(one.estimated_ms, 0) << one.algorithm;  // cost() is not called: it reports bytes of w
    EXPECT_EQ(one.workspace_bytes + one.prepared_bytes, 0u) << one.algorithm;
  }
}

TEST_F(Operators, WeightsArePreparedBehindTheWorkspace) {
  const Scratch<Correlation1dProblem> scratch(algorithm("sliding"), kProblem, Direction::forward,
                                              kCpu);
  EXPECT_EQ(scratch.prepared_bytes(), 8 * 4 * 3 * sizeof(float));
  const Tensor w = normal({8, 4, 3}, DType::f32, 4);
  const auto* const prepared = static_cast<const float*>(scratch.prepare(w.raw_data()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(prepared) % kAlignmentBytes, 0u);
  EXPECT_EQ(prepared[8], w.data<float>()[1]);  // [C T, K]
  const Scratch<Correlation1dProblem> none(algorithm("sliding"), sparse(), Direction::forward,
                                           kCpu);
  EXPECT_EQ(none.prepare(w.raw_data()), nullptr);
}

TEST_F(Operators, ChoicesAreKept) {
  const auto cache = make_ref<ChoiceCache<Correlation1dProblem>>(AlgorithmPolicy{});
  const auto get = [&](const Correlation1dProblem& problem, Direction direction,
                       WeightUse use = WeightUse::once) -> const Choice<Correlation1dProblem>& {
    return cache->get(problem, direction, kCpu, use);
  };
  const Choice<Correlation1dProblem>& first = get(kProblem, Direction::forward);
  EXPECT_STREQ(first.algorithm->name, "sliding");
  EXPECT_EQ(&get(kProblem, Direction::forward), &first);
  EXPECT_STREQ(get(sparse(), Direction::backward_data).algorithm->name, "reference");
}

// int8 products have a separate measured peak. A product of f32 images with int8 weights counts as
// int8.
TEST(Cost, BytesHaveTheirOwnPeak) {
  set_machine_peaks(
      {.flops_per_second = 1e9, .bytes_per_second = 1e18, .int8_flops_per_second = 5e9});
  const Cost cost{.flops = 1e7, .issued = 1e7};
  EXPECT_NEAR(estimated_ms(cost, DeviceType::cpu, DType::f32), 10, 1e-9);
  EXPECT_NEAR(estimated_ms(cost, DeviceType::cpu, DType::i8), 2, 1e-9);
  EXPECT_NEAR(estimated_ms(cost, DeviceType::cpu, DType::u8), 2, 1e-9);
  set_machine_peaks({.flops_per_second = 1e9, .bytes_per_second = 1e18});
  EXPECT_NEAR(estimated_ms(cost, DeviceType::cpu, DType::i8), 10 / peak_of_bytes(), 1e-9);
  set_machine_peaks({});
  Correlation1dProblem problem = integer_problem();
  EXPECT_EQ(operand_type_of(problem), DType::i8);
  problem.types->x = problem.dtype = DType::f32;
  EXPECT_EQ(operand_type_of(problem), DType::i8);
  EXPECT_EQ(operand_type_of(kProblem), DType::f32);
}

TEST(Cost, IsAskedForTheDirectionThatRuns) {
  set_machine_peaks({.flops_per_second = 1e9, .bytes_per_second = 1e9});
  CorrelationAlgorithm algorithm = sliding_algorithm();
  algorithm.cost = [](const Correlation1dProblem&, Direction direction) -> Cost {
    return {.flops = 1e6, .bytes = 1e-3, .issued = 1e6 * (1 + static_cast<int>(direction))};
  };
  algorithm.prepared_bytes = nullptr;
  for (const Direction direction : kDirections) {
    EXPECT_NEAR(estimated_ms(algorithm, kProblem, direction), 1 + static_cast<int>(direction),
                1e-6);
  }
  set_machine_peaks({});
}

TEST_F(Operators, ChoosesAndMeasuresForEachUseOfTheWeights) {
  const CacheFolder folder;
  const Question once = question_of(kProblem, Direction::forward, kCpu);
  const Question often = question_of(kProblem, Direction::forward, kCpu, WeightUse::often);
  const auto pretend = [](double sliding) {
    return [sliding] {
      return [sliding](const std::string& name) { return name == "sliding" ? sliding : 2.0; };
    };
  };
  EXPECT_EQ(measured_fastest(key_of(once), {"reference", "sliding"}, pretend(3)), "reference");
  EXPECT_EQ(measured_fastest(key_of(often), {"reference", "sliding"}, pretend(1)), "sliding");
  EXPECT_EQ(remembered_fastest(key_of(once)), "reference");
  EXPECT_GT(timing_of(kProblem, Direction::forward, kCpu, WeightUse::often)("sliding"), 0.0);
}

TEST_F(Operators, MeasurementsOfOtherThreadsAndDirectionsAreNotBelieved) {
  const CacheFolder folder;
  const MeasureKey forward = key_of(question_of(kProblem, Direction::forward, kCpu));
  const auto equal = [] { return [](const std::string&) { return 1.0; }; };
  EXPECT_EQ(measured_fastest(forward, {"sliding", "reference"}, equal), "sliding");
  EXPECT_EQ(remembered_fastest(forward), "sliding");
  EXPECT_EQ(remembered_fastest(key_of(question_of(kProblem, Direction::backward_data, kCpu))), "");
  const int before = num_threads();
  set_num_threads(before + 1);
  EXPECT_EQ(remembered_fastest(forward), "");
  set_num_threads(before);
  EXPECT_EQ(remembered_fastest(forward), "sliding");
}

TEST_F(Operators, TablesAskWithoutKnowingTheType) {
  const std::unique_ptr<OperatorUse> use =
      operator_use_of(kProblem, {.forward = "check:sliding,reference"});
  EXPECT_STREQ(use->operation(), "correlation1d");
  EXPECT_EQ(use->problem(), kProblem.text());
  EXPECT_EQ(use->kernel(), "3");
  const ChosenNames names = use->choose(Direction::forward, kCpu, WeightUse::once);
  EXPECT_EQ(names.first, "sliding");
  EXPECT_EQ(names.second, "reference");
  EXPECT_EQ(use->explain(Direction::backward_data, kCpu).size(), 2u);
}

TEST(WeightFormats, ReadAndCheckTheirText) {
  WeightFormat format;
  ASSERT_TRUE(WeightFormat::parse("blocks4x2:5", format));
  EXPECT_EQ(format.text(), "blocks4x2:5");
  EXPECT_EQ(format.stored_elements(), 40);
  EXPECT_EQ(format.misfit(8, 12), "");
  EXPECT_EQ(format.misfit(9, 12), "expects blocks that divide the 9x12 matrix of weights, got 4x2");
  EXPECT_EQ(format.misfit(4, 4),
            "expects at most 2 blocks of 4x2 in a 4x4 matrix of weights, got 5");
  for (const char* wrong : {"", "blocks", "blocks4", "blocks4x2", "blocks4x2:", "blocks4x2:5,",
                            "blocks-4x2:5", "2:4", "blocks4x2:5x"}) {
    EXPECT_FALSE(WeightFormat::parse(wrong, format)) << wrong;
  }
}

TEST(OperandTypes, ReadTheirText) {
  OperandTypes types;
  ASSERT_TRUE(OperandTypes::parse("i8:i8:i32:f32", types));
  EXPECT_EQ(types, kIntegers);
  EXPECT_EQ(types.text(), "i8:i8:i32:f32");
  EXPECT_EQ(OperandTypes::all(DType::bf16).accumulator, DType::f32);
  EXPECT_EQ(OperandTypes::all(DType::f64).accumulator, DType::f64);
  for (const char* wrong : {"", "i8", "i8:i8:i32", "i8:i8:i32:f32:f32", "i8:i8:i32:f3", "::: "}) {
    EXPECT_FALSE(OperandTypes::parse(wrong, types)) << wrong;
  }
}

}  // namespace
}  // namespace convscope::testing
