// SPDX-License-Identifier: Apache-2.0
// select_test.cpp: selection by name, auto, measure and check.
#include "layers/conv2d/select.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/machine/peaks.h"
#include "framework/parallel.h"
#include "layers/dispatch/execute.h"
#include "layers/dispatch/measure.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

const Device kCpu;
const Conv2dProblem kProblem = Conv2dProblem::parse("n=2,c=3,h=9,w=9,k=4,r=3,s=3");

std::string chosen(const std::string& policy, const Conv2dProblem& problem = kProblem) {
  return select_conv2d(policy, problem, Direction::forward, kCpu).algorithm->name;
}

// Returns an algorithm that accepts only 1x1 kernels, has no backward pass, and computes one
// element of y wrongly.
Conv2dAlgorithm picky_algorithm() {
  Conv2dAlgorithm algorithm = conv2d_algorithms(DeviceType::cpu).get("reference");
  algorithm.name = "test_picky";
  algorithm.supports = [](const Conv2dProblem& problem, Direction) {
    if (problem.r == 1 && problem.s == 1) return Conv2dSupport{};
    return Conv2dSupport::no(cat("expects a 1x1 kernel, got ", problem.r, "x", problem.s));
  };
  algorithm.forward = [](const Conv2dForwardArgs& args) {
    conv2d_algorithms(DeviceType::cpu).get("reference").forward(args);
    static_cast<float*>(args.y)[1] += 1;
  };
  algorithm.backward_data = nullptr;
  algorithm.backward_weight = nullptr;
  return algorithm;
}

TEST(Conv2dSelection, TakesTheNamedAlgorithm) {
  EXPECT_EQ(chosen("reference"), "reference");
  EXPECT_EQ(chosen("im2col_gemm_eigen"), "im2col_gemm_eigen");
}

TEST(Conv2dSelection, AutoTakesTheLowestEstimateAndNeverTheReference) {
  std::string lowest;
  double ms = 1e300;
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cpu).entries()) {
    if (!algorithm.auto_ok || !support_of(algorithm, kProblem, Direction::forward).yes) continue;
    const double estimate = estimated_ms(algorithm, kProblem, Direction::forward);
    if (estimate < ms) {
      ms = estimate;
      lowest = name;
    }
  }
  EXPECT_EQ(chosen("auto"), lowest);
  const Conv2dProblem small = Conv2dProblem::parse("h=1,w=1");
  EXPECT_NE(chosen("auto", small), "reference");
}

TEST(Conv2dSelection, AutoFallsBackToTheReferenceWhenNothingElseAccepts) {
  Conv2dProblem problem = kProblem;
  problem.dtype = DType::f64;
  EXPECT_EQ(chosen("auto", problem), "reference");
}

TEST(Conv2dSelection, RefusesUnknownWordsWithTheNearestOne) {
  EXPECT_ERROR(ErrorKind::kUnavailable, "got 'im2col_gem'; did you mean 'im2col_gemm'?",
               chosen("im2col_gem"));
  EXPECT_ERROR(ErrorKind::kUnavailable, "did you mean 'auto'?", chosen("auta"));
  EXPECT_ERROR(ErrorKind::kUnavailable,
               "im2col_gemm_eigen, im2col_gemm_lesson, implicit_gemm_lesson", chosen("qwertyuiop"));
  EXPECT_ERROR(ErrorKind::kInvalid, "two algorithms like 'check:", chosen("check:reference"));
  EXPECT_ERROR(ErrorKind::kInvalid, "two algorithms like 'check:", chosen("check:a,b,c"));
  EXPECT_ERROR(ErrorKind::kUnavailable, "got 'refrence'; did you mean 'reference'?",
               chosen("check:im2col_gemm,refrence"));
  EXPECT_ERROR(ErrorKind::kUnavailable, "did you mean 'measure'?",
               check_conv2d_policy("mesure", kCpu));
  check_conv2d_policy("check:im2col_gemm,reference", kCpu);
}

TEST(Conv2dSelection, SaysWhyTheNamedAlgorithmRefusesAndWhoAccepts) {
  Conv2dProblem problem = kProblem;
  problem.dtype = DType::f64;
  EXPECT_ERROR(ErrorKind::kUnavailable,
               "'im2col_gemm' expects elements of type f32, got f64; these accept it: reference",
               chosen("im2col_gemm", problem));
  problem.dtype = DType::i8;
  EXPECT_ERROR(ErrorKind::kUnavailable, "no algorithm here accepts it", chosen("auto", problem));
}

TEST(Conv2dSelection, AListTakesTheFirstThatAccepts) {
  const Conv2dProblem wide = Conv2dProblem::parse("n=2,c=3,h=9,w=9,k=4,r=5,s=5");
  EXPECT_EQ(chosen("winograd_f4x3,im2col_gemm"), "winograd_f4x3");
  EXPECT_EQ(chosen("winograd_f4x3,im2col_gemm", wide), "im2col_gemm");
  EXPECT_EQ(chosen("winograd_f4x3,auto", wide), chosen("auto", wide));
  EXPECT_ERROR(ErrorKind::kUnavailable, "but 'winograd_f4x3' expects",
               chosen("winograd_f4x3,gemm_1x1", wide));
  EXPECT_ERROR(ErrorKind::kUnavailable, " and 'gemm_1x1' expects",
               chosen("winograd_f4x3,gemm_1x1", wide));
  EXPECT_ERROR(ErrorKind::kUnavailable, "'winograd_f4x3,gemm_1x1,auto' takes one of them",
               chosen("winograd_f4x3,gemm_1x1", wide));
  EXPECT_ERROR(ErrorKind::kUnavailable, "did you mean 'im2col_gemm'?",
               check_conv2d_policy("winograd_f4x3,im2col_gem", kCpu));
}

TEST(Conv2dSelection, ADirectionThatIsNotOfferedIsRefused) {
  const Conv2dAlgorithm algorithm = picky_algorithm();
  EXPECT_EQ(support_of(algorithm, kProblem, Direction::backward_data).reason,
            "does not compute backward_data");
  EXPECT_EQ(support_of(algorithm, kProblem, Direction::forward).reason,
            "expects a 1x1 kernel, got 3x3");
}

TEST(Conv2dSelection, EstimatesFollowThePeaks) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("im2col_gemm");
  set_machine_peaks({1e9, 1e12});
  const double slow = estimated_ms(algorithm, kProblem, Direction::forward);
  set_machine_peaks({2e9, 1e12});
  EXPECT_NEAR(estimated_ms(algorithm, kProblem, Direction::forward), slow / 2, 1e-2 * slow);
  set_machine_peaks({});
}

TEST(Conv2dSelection, ExplainsEveryAlgorithm) {
  const auto verdicts = explain_conv2d("auto", kProblem, Direction::forward, kCpu);
  ASSERT_EQ(verdicts.size(), conv2d_algorithms(DeviceType::cpu).names().size());
  EXPECT_EQ(verdicts[0].algorithm, chosen("auto"));
  EXPECT_TRUE(verdicts[0].chosen);
  EXPECT_GT(verdicts[0].estimated_ms, 0.0);
  Conv2dProblem twice = kProblem;
  twice.dtype = DType::f64;
  for (const auto& verdict : explain_conv2d("auto", twice, Direction::forward, kCpu)) {
    EXPECT_EQ(verdict.accepts, verdict.algorithm == "reference") << verdict.reason;
    if (!verdict.accepts) {
      // Algorithms for integers or for sparse weights refuse other problems with a message that
      // names the expected types.
      const bool needs_other_types =
          verdict.algorithm.starts_with("int8") || verdict.algorithm.starts_with("block_sparse");
      EXPECT_TRUE(needs_other_types ? verdict.reason.starts_with("expects ")
                                    : verdict.reason == "expects elements of type f32, got f64")
          << verdict.reason;
    }
  }
}

// ---- check:a,b ---------------------------------------------------------------------------------

TEST(Conv2dSelection, CheckReturnsTheFirstWhenBothAgree) {
  const Tensor x = testing::normal(kProblem.x_shape(), DType::f32, 1);
  const Tensor w = testing::normal(kProblem.w_shape(), DType::f32, 2);
  const Tensor dy = testing::normal(kProblem.y_shape(), DType::f32, 3);
  const std::string policy = "check:im2col_gemm,reference";
  const auto choice = [&](Direction d) { return select_conv2d(policy, kProblem, d, kCpu); };
  const Conv2dChoice alone = select_conv2d("im2col_gemm", kProblem, Direction::forward, kCpu);
  const Tensor y = Tensor::empty(kProblem.y_shape());
  const Tensor expected = Tensor::empty(kProblem.y_shape());
  execute(choice(Direction::forward), kProblem, Direction::forward, {.in = {x, w}, .out = {y}});
  execute(alone, kProblem, Direction::forward, {.in = {x, w}, .out = {expected}});
  EXPECT_TRUE(testing::same_bits(y, expected));
  execute(choice(Direction::backward_data), kProblem, Direction::backward_data,
          {.in = {dy, w}, .out = {x.clone()}});
  for (const bool accumulate : {false, true}) {
    execute(choice(Direction::backward_weight), kProblem, Direction::backward_weight,
            {.in = {x, dy}, .out = {w.clone()}, .accumulate = accumulate});
  }
}

TEST(Conv2dSelection, CheckFailsWhenTheTwoDiffer) {
  const Conv2dAlgorithm wrong = picky_algorithm();
  const Conv2dAlgorithm& right = conv2d_algorithms(DeviceType::cpu).get("im2col_gemm");
  const Tensor x = testing::normal(kProblem.x_shape(), DType::f32, 1);
  const Tensor w = testing::normal(kProblem.w_shape(), DType::f32, 2);
  const Tensor y = Tensor::empty(kProblem.y_shape());
  EXPECT_ERROR(ErrorKind::kRun, "expected 'im2col_gemm' and 'test_picky' to agree within",
               execute({&right, &wrong}, kProblem, Direction::forward, {.in = {x, w}, .out = {y}}));
}

// ---- measure -----------------------------------------------------------------------------------

class Measure : public ::testing::Test {
 protected:
  void SetUp() override {
    set_num_threads(1);
    setenv("CONVSCOPE_CACHE_DIR", folder_.path().c_str(), 1);
    forget_measured();
  }
  void TearDown() override {
    unsetenv("CONVSCOPE_CACHE_DIR");
    forget_measured();
    set_num_threads(0);
  }
  std::string file() const { return measure_cache_path("conv2d", kCpu); }
  std::string content() const {
    std::ifstream in(file());
    return {(std::istreambuf_iterator<char>(in)), {}};
  }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  testing::TemporaryFolder folder_;
};

TEST_F(Measure, RemembersTheFastestOnDisk) {
  EXPECT_EQ(measured_conv2d(kProblem, Direction::forward, kCpu), nullptr);
  const std::string name = chosen("measure");
  EXPECT_NE(name, "reference");
  EXPECT_NE(content().find(kProblem.text()), std::string::npos) << content();
  EXPECT_NE(content().find("threads=1"), std::string::npos);
  forget_measured();
  const Conv2dAlgorithm* known = measured_conv2d(kProblem, Direction::forward, kCpu);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->name, name);
  EXPECT_EQ(measured_conv2d(kProblem, Direction::backward_data, kCpu), nullptr);
}

TEST_F(Measure, BelievesTheFileInsteadOfMeasuringAgain) {
  const std::string first = chosen("measure");
  const std::string other = first == "im2col_gemm" ? "im2col_gemm_eigen" : "im2col_gemm";
  std::string text = content();
  const std::size_t at = text.find('"' + first + '"');
  ASSERT_NE(at, std::string::npos) << text;
  write(text.replace(at + 1, first.size(), other));
  forget_measured();
  EXPECT_EQ(chosen("measure"), other);
}

TEST_F(Measure, IgnoresAndRewritesAFileThatIsNotOurs) {
  for (const char* damaged : {"{\"format\": \"convscope conv2d measu", "[]", "\x80\xff", "",
                              "{\"format\":\"convscope conv2d measurements 1\",\"fastest\":3}"}) {
    write(damaged);
    forget_measured();
    ::testing::internal::CaptureStderr();
    EXPECT_NE(chosen("measure"), "reference");
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("written again"), std::string::npos);
    EXPECT_NE(content().find(kProblem.text()), std::string::npos) << content();
  }
}

// Results that another process writes between two measurements of this one.
TEST_F(Measure, KeepsWhatOthersHaveMeasuredMeanwhile) {
  const std::string first = chosen("measure");
  std::string text = content();
  const std::size_t at = text.find("\"fastest\":");
  ASSERT_NE(at, std::string::npos) << text;
  write(text.insert(text.find('{', at) + 1, "\"a problem of another process\": \"direct\", "));
  chosen("measure", Conv2dProblem::parse("n=2,c=3,h=9,w=9,k=4,r=3,s=3"));
  EXPECT_NE(content().find("a problem of another process"), std::string::npos) << content();
  EXPECT_NE(content().find(kProblem.text()), std::string::npos) << content();
}

TEST_F(Measure, AnAlgorithmThatIsGoneIsMeasuredAgain) {
  const std::string first = chosen("measure");
  std::string text = content();
  const std::size_t at = text.find('"' + first + '"');
  write(text.replace(at + 1, first.size(), "long_gone"));
  forget_measured();
  EXPECT_NE(chosen("measure"), "long_gone");
  EXPECT_EQ(content().find("long_gone"), std::string::npos);
}

TEST_F(Measure, AFolderThatCannotBeWrittenIsAWarningOnly) {
  const std::string plain_file = folder_ / "file";
  std::ofstream(plain_file) << "not a folder";
  setenv("CONVSCOPE_CACHE_DIR", (plain_file + "/below").c_str(), 1);
  ::testing::internal::CaptureStderr();
  EXPECT_NE(chosen("measure"), "reference");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("is not stored on disk"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
