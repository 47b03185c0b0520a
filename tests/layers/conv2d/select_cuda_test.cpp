// SPDX-License-Identifier: Apache-2.0
// select_cuda_test.cpp: tests the selection of algorithms on a CUDA device: auto, measure, check,
// and the terms of the cost estimates.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "experiments/bench/peaks/measure_gpu_peaks.h"
#include "framework/machine/machine.h"
#include "framework/machine/peaks.h"
#include "layers/conv2d/select.h"
#include "layers/dispatch/execute.h"
#include "layers/dispatch/half_problem.h"
#include "layers/dispatch/measure.h"
#include "tests/support/cuda.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

const Device kCuda{.type = DeviceType::cuda};
const Conv2dProblem kProblem = Conv2dProblem::parse("n=2,c=4,h=9,w=9,k=6,r=3,s=3,pad=1");
constexpr MachinePeaks kMachine{.flops_per_second = 50e12,
                                .bytes_per_second = 4e12,
                                .tf32_flops_per_second = 360e12,
                                .half_flops_per_second = 740e12,
                                .launch_seconds = 2e-6};

class SelectionOnCuda : public testing::CudaTest {
 protected:
  void SetUp() override {
    testing::CudaTest::SetUp();
    if (IsSkipped()) return;
    setenv("CONVSCOPE_CACHE_DIR", folder_.path().c_str(), 1);
    forget_measured();
    forget_cpu_peaks();
  }
  void TearDown() override {
    unsetenv("CONVSCOPE_CACHE_DIR");
    set_machine_peaks({}, DeviceType::cuda);
    forget_measured();
    forget_cpu_peaks();
  }
  testing::TemporaryFolder folder_;
};

// Returns an algorithm whose cost the test sets. No table knows it, so it has the default
// coefficients.
Conv2dCost cost_of_test;
Conv2dAlgorithm algorithm_with_cost() {
  Conv2dAlgorithm algorithm = conv2d_algorithms(DeviceType::cuda).get("im2col_gemm");
  algorithm.name = "algorithm_of_test";
  algorithm.cost = [](const Conv2dProblem&, Direction) { return cost_of_test; };
  return algorithm;
}

TEST_F(SelectionOnCuda, AnEstimateAddsPassesAndLaunchesToTheSums) {
  set_machine_peaks(kMachine, DeviceType::cuda);
  const Conv2dAlgorithm algorithm = algorithm_with_cost();
  const auto ms = [&](const Conv2dProblem& problem) {
    return estimated_ms(algorithm, problem, Direction::forward);
  };
  // Work takes 3 ms, traffic 4 ms, a pass and the launches 1 ms each.
  cost_of_test = {.bytes = 16e9, .issued = 100e9, .launches = 0};
  EXPECT_NEAR(ms(kProblem), 7.0, 1e-3);
  cost_of_test.pass_bytes = 4e9;
  EXPECT_NEAR(ms(kProblem), 8.0, 1e-3);
  cost_of_test.launches = 500;
  EXPECT_NEAR(ms(kProblem), 9.0, 1e-3);
  cost_of_test = {.issued = 720e9, .launches = 0, .tensor_cores = true};
  EXPECT_NEAR(ms(kProblem), 3.0, 1e-3);
  Conv2dProblem half = kProblem;
  half.dtype = DType::bf16;
  EXPECT_NEAR(ms(half), 1.5 * 720 / 740, 1e-3);
}

TEST_F(SelectionOnCuda, PeaksOfTheCpuAndOfTheGpuAreApart) {
  const MachinePeaks cpu = machine_peaks();
  set_machine_peaks(kMachine, DeviceType::cuda);
  EXPECT_EQ(machine_peaks().flops_per_second, cpu.flops_per_second);
  EXPECT_EQ(machine_peaks(DeviceType::cuda).tf32_flops_per_second, 360e12);
}

TEST_F(SelectionOnCuda, AutoChoosesAAlgorithmForEveryDirectionOfTheUsualProblems) {
  for (const char* text : {"n=32,c=3,h=224,w=224,k=64,r=7,s=7,stride=2,pad=3",
                           "n=32,c=256,h=14,w=14,k=256,r=3,s=3,pad=1", "n=1,c=1,h=1,w=1,k=1",
                           "n=0,c=3,h=8,w=8,k=4,r=3,s=3", "n=4,c=6,h=9,w=8,k=6,r=3,s=2,groups=3",
                           "n=2,c=8,h=16,w=16,k=8,r=3,s=3,dilation=2,dtype=bf16"}) {
    for (const Direction direction : kDirections) {
      const Conv2dProblem problem = Conv2dProblem::parse(text);
      const auto verdicts = explain_conv2d("auto", problem, direction, kCuda);
      ASSERT_FALSE(verdicts.empty());
      EXPECT_TRUE(verdicts[0].accepts) << text;
      const Conv2dChoice choice = select_conv2d("auto", problem, direction, kCuda);
      EXPECT_EQ(choice.algorithm->device, DeviceType::cuda);
      EXPECT_TRUE(choice.algorithm->auto_ok) << text;
    }
  }
}

TEST_F(SelectionOnCuda, AutoNeverTakesAnotherPrecisionThanAskedFor) {
  // A large product, where TF32 would be seven times as fast.
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=32,h=12,w=12,k=32,r=3,s=3,pad=1");
  const Tensor x = testing::normal(problem.x_shape(), DType::f32, 1);
  const Tensor w = testing::normal(problem.w_shape(), DType::f32, 2);
  const auto convolve = [&](const std::string& policy, Device device) {
    const Tensor y = Tensor::empty(problem.y_shape(), DType::f32, device);
    execute(select_conv2d(policy, problem, Direction::forward, device), problem, Direction::forward,
            {.in = {x.to(device), w.to(device)}, .out = {y}});
    return y.to(Device{});
  };
  const Tensor expected = convolve("reference", Device{});
  const Tensor y = convolve("auto", kCuda);
  double difference = 0;
  double size = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    difference += (y.at(i) - expected.at(i)) * (y.at(i) - expected.at(i));
    size += expected.at(i) * expected.at(i);
  }
  EXPECT_LT(std::sqrt(difference / size), 2e-6);  // TF32: 3e-4
}

TEST_F(SelectionOnCuda, ANameOfTheOtherDeviceIsRefused) {
  EXPECT_ERROR(ErrorKind::kUnavailable, "an algorithm for device cuda:0",
               select_conv2d("im2col_gemm_eigen", kProblem, Direction::forward, kCuda));
  EXPECT_ERROR(ErrorKind::kUnavailable, "'gemm_1x1' expects a 1x1 kernel, got 3x3; these accept it",
               select_conv2d("gemm_1x1", kProblem, Direction::forward, kCuda));
}

TEST_F(SelectionOnCuda, AnEmptyMultiprocessorHelpsNobody) {
  // A block of `direct` computes 64 channels of such an image.
  const auto ms = [](std::int64_t images) {
    Conv2dProblem problem = Conv2dProblem::parse("n=1,c=256,h=16,w=16,k=64,r=3,s=3,pad=1");
    problem.n = images;
    return estimated_ms(conv2d_algorithms(DeviceType::cuda).get("direct"), problem,
                        Direction::forward);
  };
  const auto full = static_cast<std::int64_t>(machine_peaks(DeviceType::cuda).processors);
  ASSERT_GE(full, 4);
  EXPECT_NEAR(ms(full) / ms(1), 1, 0.2);  // except for the stores of more images
  EXPECT_GT(ms(16 * full) / ms(full), 2);
}

// Loading by TMA pays off for large problems, but not for a few pixels with two channels.
TEST_F(SelectionOnCuda, NhwcAutoTakesTmaForLargeProblemsOnly) {
  const auto chosen = [](const char* text) {
    const Conv2dProblem problem = with_nhwc(Conv2dProblem::parse(text));
    return std::string(select_algorithm<Conv2dProblem>("auto", problem, Direction::forward, kCuda,
                                                       WeightUse::often)
                           .algorithm->name);
  };
  const Conv2dProblem large =
      with_nhwc(Conv2dProblem::parse("n=128,c=256,h=28,w=28,k=256,r=3,s=3,pad=1,dtype=bf16"));
  if (!support_of(conv2d_algorithms(DeviceType::cuda).get("implicit_gemm_tma"), large,
                  Direction::forward)
           .yes) {
    GTEST_SKIP() << "no copy engine here";
  }
  set_machine_peaks(kMachine, DeviceType::cuda);
  EXPECT_EQ(chosen("n=128,c=256,h=28,w=28,k=256,r=3,s=3,pad=1,dtype=bf16"), "implicit_gemm_tma");
  // On these problems the TMA algorithm takes 2.5 to 3 times as long as implicit_gemm. The
  // estimates show only a part of this difference, which is enough to choose implicit_gemm.
  for (const char* text : {"n=1,c=2,h=4,w=33,k=3,r=3,s=3,pad=1,dtype=bf16",
                           "n=2,c=3,h=6,w=5,k=4,r=6,s=5,dtype=bf16"}) {
    EXPECT_EQ(chosen(text), "implicit_gemm");
    const auto ms = [&](const char* algorithm) {
      return estimated_ms(conv2d_algorithms(DeviceType::cuda).get(algorithm),
                          with_nhwc(Conv2dProblem::parse(text)), Direction::forward,
                          WeightUse::often);
    };
    EXPECT_GT(ms("implicit_gemm_tma"), 1.2 * ms("implicit_gemm")) << text;
  }
}

TEST_F(SelectionOnCuda, SpectraOfWeightsThatArePreparedCostNothingInACall) {
  const Conv2dAlgorithm& fft = conv2d_algorithms(DeviceType::cuda).get("fft");
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=1,c=6,h=7,w=7,k=6,r=13,s=13,pad=6,groups=6");
  const auto ms = [&](Direction direction, WeightUse use) {
    return estimated_ms(fft, problem, direction, use);
  };
  EXPECT_LT(1.3 * ms(Direction::forward, WeightUse::often),
            ms(Direction::forward, WeightUse::once));
  EXPECT_EQ(ms(Direction::backward_weight, WeightUse::often),
            ms(Direction::backward_weight, WeightUse::once));
}

TEST_F(SelectionOnCuda, TimingRepeatsTheNumbersOfLargeArrays) {
  constexpr std::int64_t kDifferent = 1 << 18;
  const Conv2dProblem problem = Conv2dProblem::parse("n=1,c=9,h=176,w=177,k=2");
  const OperandSpecs specs = problem.operands(Direction::forward);
  const Operands random = random_operands(specs, kCuda), repeated = repeated_operands(specs, kCuda);
  const Tensor x = repeated.in[0].values.to(Device{});
  ASSERT_GT(x.numel(), kDifferent + 1000);
  EXPECT_EQ(x.shape(), problem.x_shape());
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    ASSERT_EQ(x.at(i), x.at(i % kDifferent)) << i;
    ASSERT_TRUE(i == 0 || x.at(i) != x.at(i - 1)) << i;
  }
  const Tensor w = repeated.in[1].values.to(Device{});
  for (std::int64_t i = 0; i < w.numel(); ++i)
    EXPECT_EQ(w.at(i), random.in[1].values.to(Device{}).at(i));
  EXPECT_EQ(repeated.out[0].values.shape(), problem.y_shape());
  // On the CPU all are different.
  const Tensor own = repeated_operands(specs, Device{}).in[0].values;
  EXPECT_NE(own.at(0), own.at(kDifferent));
}

TEST_F(SelectionOnCuda, ACandidateThatHasLostIsNotTimedFurther) {
  int runs = 0;
  const auto slow = [&] {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  EXPECT_GT(best_seconds(slow, kCuda, /*enough=*/-1), 5e-4);
  EXPECT_EQ(runs, 2);  // the warm-up and one time
  // The host launches each kernel of a short run, and this takes longer than the kernels.
  runs = 0;
  best_seconds([&] { ++runs; }, kCuda, /*enough=*/-1);
  EXPECT_GT(runs, 2);
}

TEST_F(SelectionOnCuda, MeasureRemembersByGpuAndDriver) {
  EXPECT_EQ(measured_conv2d(kProblem, Direction::forward, kCuda), nullptr);
  const Conv2dAlgorithm* fastest =
      select_conv2d("measure", kProblem, Direction::forward, kCuda).algorithm;
  std::ifstream file(measure_cache_path("conv2d", kCuda));
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(content.find(gpu_name(kCuda) + " | forward | " + kProblem.text()), std::string::npos)
      << content;
  forget_measured();
  EXPECT_EQ(measured_conv2d(kProblem, Direction::forward, kCuda), fastest);
  Conv2dProblem tf32 = kProblem;
  tf32.math = MathMode::tf32;  // another problem
  EXPECT_EQ(measured_conv2d(tf32, Direction::forward, kCuda), nullptr);
}

TEST_F(SelectionOnCuda, CheckComparesOnTheDevice) {
  const Tensor x = testing::normal(kProblem.x_shape(), DType::f32, 1).to(kCuda);
  const Tensor w = testing::normal(kProblem.w_shape(), DType::f32, 2).to(kCuda);
  const Tensor dy = testing::normal(kProblem.y_shape(), DType::f32, 3).to(kCuda);
  const auto choice = [&](Direction d) {
    return select_conv2d("check:winograd_f4x3,im2col_gemm", kProblem, d, kCuda);
  };
  const Tensor y = Tensor::empty(kProblem.y_shape(), DType::f32, kCuda);
  execute(choice(Direction::forward), kProblem, Direction::forward, {.in = {x, w}, .out = {y}});
  execute(choice(Direction::backward_data), kProblem, Direction::backward_data,
          {.in = {dy, w}, .out = {x.clone()}});
  execute(choice(Direction::backward_weight), kProblem, Direction::backward_weight,
          {.in = {x, dy}, .out = {w.clone()}, .accumulate = true});

  Conv2dAlgorithm wrong = conv2d_algorithms(DeviceType::cuda).get("im2col_gemm");
  wrong.name = "wrong";
  wrong.forward = [](const Conv2dForwardArgs& args) {
    conv2d_algorithms(DeviceType::cuda).get("im2col_gemm").forward(args);
    backend_of(kCuda).fill_bytes(0, args.y, 0x3f, sizeof(float));
  };
  const Conv2dAlgorithm& right = conv2d_algorithms(DeviceType::cuda).get("winograd_f2x3");
  EXPECT_ERROR(ErrorKind::kRun, "expected 'winograd_f2x3' and 'wrong' to agree within",
               execute({&right, &wrong}, kProblem, Direction::forward, {.in = {x, w}, .out = {y}}));
}

TEST_F(SelectionOnCuda, MeasuredPeaksAreRememberedAndBelieved) {
  EXPECT_FALSE(remembered_gpu_peaks());
  const GpuPeaks measured = measure_gpu_peaks(0.002);
  EXPECT_GT(measured.f32_flops, 0);
  EXPECT_GT(measured.copy_bytes, 0);
  EXPECT_GT(measured.launch_seconds, 0);
  const GpuPeaks peaks{40e12, 300e12, 600e12, 3e12, 3e-6};
  remember_gpu_peaks(peaks);
  forget_cpu_peaks();
  const auto again = remembered_gpu_peaks();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->half_flops, 600e12);
  const MachinePeaks believed = machine_peaks(DeviceType::cuda);
  EXPECT_EQ(believed.flops_per_second, 40e12);
  EXPECT_EQ(believed.tf32_flops_per_second, 300e12);
  EXPECT_EQ(believed.half_flops_per_second, 600e12);
  EXPECT_EQ(believed.bytes_per_second, 3e12);
  EXPECT_EQ(believed.launch_seconds, 3e-6);
  EXPECT_EQ(believed.processors, backend_of(kCuda).facts(0).multiprocessors);
  remember_gpu_peaks({40e12, 300e12, 600e12, -1, 3e-6});  // not a sensible number
  EXPECT_FALSE(remembered_gpu_peaks());
  forget_cpu_peaks();
  EXPECT_EQ(machine_peaks(DeviceType::cuda).flops_per_second, kMeasuredH200.f32_flops);
}

}  // namespace
}  // namespace convscope
