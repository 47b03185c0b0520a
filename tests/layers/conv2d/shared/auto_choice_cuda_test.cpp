// SPDX-License-Identifier: Apache-2.0
// auto_choice_cuda_test.cpp: tests that `auto` chooses a fast algorithm on a GPU like an H200. Each
// case lists the algorithms that took at most 1.25 times as long as the fastest on an H200, the
// fastest first; of `Planes` and of the first points only the fastest was recorded. Estimates
// depend on the number of SMs, so the cases run on an emulation with 132 SMs (in ctest:
// cuda_choices) and are skipped elsewhere.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/machine/peaks.h"
#include "layers/conv2d/select.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

constexpr int kMultiprocessors = 132;

struct Case {
  const char* problem;
  Direction direction;
  const char* fast;                  // names with blanks between them
  WeightUse use = WeightUse::often;  // once: as the benchmark measures
};
constexpr Direction kForward = Direction::forward, kDx = Direction::backward_data,
                    kDw = Direction::backward_weight;

class AutoChoiceOnCuda : public testing::CudaTest {
 protected:
  void SetUp() override {
    testing::CudaTest::SetUp();
    if (IsSkipped()) return;
    const DeviceFacts facts = backend_of(testing::cuda()).facts(0);
    if (!testing::is_emulated() || facts.multiprocessors != kMultiprocessors) {
      GTEST_SKIP() << "expects the emulation of a GPU with " << kMultiprocessors
                   << " multiprocessors, got " << facts.name << " with " << facts.multiprocessors;
    }
    set_machine_peaks({}, DeviceType::cuda);  // the built-in ones, for which costs were fitted
  }
  static void expect_fast(const std::vector<Case>& cases) {
    for (const auto& [text, direction, fast, use] : cases) {
      const Choice<Conv2dProblem> choice =
          select_algorithm("auto", Conv2dProblem::parse(text), direction, testing::cuda(), use);
      EXPECT_NE(cat(" ", fast, " ").find(cat(" ", choice.algorithm->name, " ")), std::string::npos)
          << choice.algorithm->name << ", not one of " << fast << ": " << text << ", "
          << name_of(direction);
    }
  }
};

TEST_F(AutoChoiceOnCuda, LargeKernels) {
  expect_fast({
      {"n=32,c=64,h=56,w=56,k=64,r=11,s=11,pad=5", kForward, "fft"},
      {"n=32,c=64,h=56,w=56,k=64,r=11,s=11,pad=5", kDx, "fft"},
      {"n=32,c=64,h=56,w=56,k=64,r=11,s=11,pad=5", kDw, "fft"},
      {"n=32,c=32,h=28,w=28,k=96,r=5,s=5,pad=2", kDx, "fft implicit_gemm_tma_fp16x3"},
      {"n=32,c=32,h=28,w=28,k=96,r=5,s=5,pad=2", kDw, "fft"},
      {"n=128,c=32,h=28,w=28,k=96,r=5,s=5,pad=2", kForward, "fft implicit_gemm"},
      {"n=128,c=32,h=28,w=28,k=96,r=5,s=5,pad=2", kDx, "fft"},
      {"n=1,c=64,h=112,w=112,k=64,r=21,s=21,pad=10,groups=64", kForward, "fft"},
      {"n=32,c=128,h=56,w=56,k=128,r=9,s=9,pad=4,groups=128", kDx, "fft"},
      {"n=1,c=512,h=14,w=14,k=512,r=13,s=13,pad=6,groups=512", kDw, "depthwise fft"},
      {"n=32,c=64,h=56,w=56,k=64,r=7,s=7,pad=3,precision=tf32", kForward, "implicit_gemm fft"},
      {"n=32,c=64,h=56,w=56,k=64,r=11,s=11,pad=5,precision=tf32", kForward, "fft"},
      {"n=32,c=64,h=56,w=56,k=64,r=11,s=11,pad=5,precision=tf32", kDx, "fft"},
      {"n=32,c=64,h=56,w=56,k=64,r=11,s=11,pad=5,precision=tf32", kDw, "fft"},
  });
}

// These are layers of ResNet-18 with one image. With winograd_f4x3_fp16x3 in all of them, inference
// takes 12 % longer in f32 and 47 % longer in TF32.
TEST_F(AutoChoiceOnCuda, PreparedWeightsOfOneImage) {
  expect_fast({
      {"n=1,c=64,h=56,w=56,k=64,r=3,s=3,pad=1", kForward,
       "winograd_f4x3 winograd_f2x3 implicit_gemm implicit_gemm_tma_fp16x3"},
      {"n=1,c=128,h=28,w=28,k=128,r=3,s=3,pad=1", kForward,
       "winograd_f2x3 winograd_f4x3 implicit_gemm winograd_f4x3_fp16x3"},
      {"n=1,c=64,h=56,w=56,k=64,r=3,s=3,pad=1,precision=tf32", kForward,
       "winograd_f4x3 implicit_gemm winograd_f2x3"},
      {"n=1,c=128,h=28,w=28,k=128,r=3,s=3,pad=1,precision=tf32", kForward,
       "implicit_gemm winograd_f2x3 winograd_f4x3 winograd_f4x3_fp16x3"},
  });
}

TEST_F(AutoChoiceOnCuda, ManyChannelsOnSmallPlanes) {
  expect_fast({
      {"n=32,c=512,h=28,w=28,k=512,r=3,s=3,pad=1", kForward, "winograd_f4x3_fp16x3"},
      {"n=32,c=512,h=28,w=28,k=512,r=3,s=3,pad=1", kDw, "winograd_f4x3_fp16x3"},
      {"n=1,c=512,h=7,w=7,k=512,r=3,s=3,pad=1", kDw, "few_pixels"},
      {"n=1,c=256,h=14,w=14,k=256,r=3,s=3,pad=1", kDw, "few_pixels"},
      {"n=32,c=512,h=7,w=7,k=512,r=3,s=3,pad=1,dtype=bf16", kDw, "im2col_gemm"},
      {"n=1,c=512,h=7,w=7,k=512,r=3,s=3,stride=2,pad=1,groups=32", kDw, "implicit_gemm"},
      {"n=32,c=72,h=7,w=7,k=512,r=3,s=3,pad=1,precision=tf32,layout=nhwc", kForward,
       "implicit_gemm_tma", WeightUse::once},
  });
}

// Large images cause much memory traffic, which makes the transforms of Winograd and the gathering
// of pixels slow.
TEST_F(AutoChoiceOnCuda, LargeImages) {
  expect_fast({
      {"n=32,c=64,h=224,w=224,k=64,r=3,s=3,pad=1", kForward, "implicit_gemm_tma_fp16x3"},
      {"n=32,c=64,h=224,w=224,k=64,r=3,s=3,pad=1", kDx, "implicit_gemm_tma_fp16x3 implicit_gemm"},
      {"n=32,c=64,h=224,w=224,k=64,r=3,s=3,pad=1", kDw, "implicit_gemm_tma_fp16x3"},
      {"n=32,c=64,h=56,w=56,k=128,r=3,s=3,stride=2,pad=1", kDw,
       "implicit_gemm_tma_fp16x3 implicit_gemm"},
  });
}

// Blocks bound by their stores, and samples that share the SMs.
TEST_F(AutoChoiceOnCuda, FewChannels) {
  expect_fast({
      {"n=32,c=3,h=32,w=32,k=16,r=5,s=5,pad=2", kForward, "direct_sample"},
      {"n=128,c=3,h=32,w=32,k=24,r=5,s=5,pad=2", kDx, "direct"},
      {"n=32,c=3,h=128,w=224,k=24,r=3,s=3,stride=2,pad=1", kDw,
       "implicit_gemm implicit_gemm_tma_fp16x3 direct"},
      {"n=32,c=144,h=224,w=224,k=8,r=3,s=3,stride=2,pad=1", kDx, "implicit_gemm"},
      {"n=1,c=40,h=28,w=16,k=96,stride=2", kForward, "implicit_gemm"},
  });
}

// Planes whose rows are not whole units.
TEST_F(AutoChoiceOnCuda, Planes) {
  expect_fast({
      {"n=1,c=224,h=27,w=27,k=224,r=7,s=7,stride=2,pad=3,groups=224", kDw, "direct_any"},
      {"n=32,c=224,h=27,w=27,k=224,r=7,s=7,stride=2,pad=3,groups=224", kDw, "depthwise"},
      {"n=32,c=160,h=20,w=20,k=160,r=7,s=7,pad=3,groups=160", kDw, "depthwise"},
  });
}

// Problems with few pixels in tf32: a cuBLAS product has to wait until the previous kernel has
// ended, and this wait takes much of the time.
TEST_F(AutoChoiceOnCuda, NhwcPoints) {
  expect_fast({
      {"n=1,c=16,h=20,w=16,k=96,precision=tf32,layout=nhwc", kDx, "cluster_gemm"},
      {"n=1,c=48,h=10,w=10,k=288,precision=tf32,layout=nhwc", kDx, "cluster_gemm"},
      {"n=32,c=48,h=10,w=10,k=288,precision=tf32,layout=nhwc", kDx, "implicit_gemm_tma"},
  });
}

// With a stride, TMA loads only every second pixel and takes longer for it.
TEST_F(AutoChoiceOnCuda, Strides) {
  expect_fast({
      {"n=32,c=1280,h=40,w=40,k=224,stride=2,dtype=bf16,types=bf16:f32:f32:bf16,"
       "layout=nhwc",
       kForward, "implicit_gemm_tma"},
      {"n=1,c=72,h=38,w=38,k=80,r=3,s=3,stride=2,pad=1,dtype=bf16,types=bf16:f32:f32:bf16,"
       "layout=nhwc",
       kDw, "implicit_gemm implicit_gemm_tma"},
      {"n=1,c=128,h=35,w=35,k=32,stride=2", kDx, "im2col_gemm direct_any", WeightUse::once},
  });
}

TEST_F(AutoChoiceOnCuda, Points) {
  expect_fast({
      {"n=1,c=24,h=20,w=10,k=288", kDx, "gemm_1x1"},
      {"n=32,c=1280,h=19,w=19,k=512,dtype=bf16", kForward, "implicit_gemm"},
  });
}

}  // namespace
}  // namespace convscope
