// SPDX-License-Identifier: Apache-2.0
// lsq_cuda_test.cpp: the quantiser and the masks of pruning on `device cuda` against the CPU.
#include "quant/lsq.h"
#include "quant/quantizer.h"
#include "sparsity/hold.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::expect_gradients_like_cpu;
using testing::expect_like_cpu;
using testing::normal;
using LsqOnCuda = testing::CudaTest;
using HoldOnCuda = testing::CudaTest;

TEST_F(LsqOnCuda, RoundsToTheCodesOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const StepForm form : {StepForm::plain, StepForm::log}) {
      for (const bool by_channel : {false, true}) {
        for (const Shape& shape : {Shape{3, 5, 3, 3}, Shape{2, 5001}, Shape{0, 4}}) {
          if (by_channel && shape[0] == 0) continue;
          SCOPED_TRACE(cat(shape, " ", name_of(dtype), " log ", form == StepForm::log));
          const Shape steps{by_channel ? shape[0] : 1};
          const LsqRule rule{.grid = integer_grid(3, true), .form = form, .g = 0.01};
          const bool log = form == StepForm::log;
          // v_hat and dv: bit by bit, where exp(t) has the same bits, else an ulp; the step's
          // gradient is a sum of up to 5001 numbers of size 1, times 0.01.
          expect_gradients_like_cpu(
              [&](const auto& v) { return lsq_quantize(v[0], v[1], rule); },
              {normal(shape, dtype, 1),
               testing::uniform(steps, log ? -1.5f : 0.2f, log ? -0.5f : 0.6f, dtype, 2)},
              testing::few_ulp(dtype, 64));
        }
      }
    }
  }
}

TEST_F(LsqOnCuda, KeepsAStepInItsBounds) {
  for (const StepForm form : {StepForm::plain, StepForm::log}) {
    expect_like_cpu(
        [&](const auto& t) {
          const Tensor step = t[0].clone();
          const Tensor last = t[1].clone();
          step_bounds_kernel.get(step.device())(step, last, t[2], form);
          return std::vector<Tensor>{step, last};
        },
        {Tensor::from({0.001f, 0.05f, 9.0f, 1e5f}, {4}),
         Tensor::from({0.05f, 0.05f, 8.9f, 3.0f}, {4}),
         Tensor::from({1.0f, 0.05f, 10.0f, 2.0f}, {4})},
        testing::few_ulp(DType::f32));
  }
}

TEST_F(HoldOnCuda, PutsBackAndClearsWhatIsMaskedOut) {
  for (const std::int64_t n : {0, 1, 5, 1024}) {
    const Tensor keep = elementwise(UnaryOp::relu, normal({n}, DType::f32, 1));
    expect_like_cpu(
        [](const auto& t) {
          const Tensor w = t[2].clone();
          const Tensor state = t[2].clone();
          put_back(t[0], t[1], w);
          clear_masked(t[0], state);
          return std::vector<Tensor>{w, state};
        },
        {keep, normal({n}, DType::f32, 2), normal({n}, DType::f32, 3)}, {});
  }
}

}  // namespace
}  // namespace convscope
