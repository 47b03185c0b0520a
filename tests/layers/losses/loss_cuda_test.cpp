// SPDX-License-Identifier: Apache-2.0
// loss_cuda_test.cpp: every loss on `device cuda`, eager and in a recordable step, compared with
// the CPU.
#include "layers/linear/linear.h"
#include "layers/losses/loss.h"
#include "layers/plan/step_plan.h"
#include "tests/layers/losses/loss_cases.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using LossOnCuda = testing::CudaTest;

Tensor labels() { return Tensor::from({0, 2, 1, 3, 3}, {5}).to(DType::i32); }

TEST_F(LossOnCuda, HasTheValuesAndGradientsOfTheCpu) {
  for (const auto& [name, loss] : testing::all_losses(4)) {
    SCOPED_TRACE(name);
    testing::expect_gradients_like_cpu(
        [&, &loss = loss](const auto& v) { return loss(v[0], labels().to(v[0].device())); },
        {testing::normal({5, 4}, DType::f32, 1)}, testing::few_ulp(DType::f32, 64));
  }
}

TEST_F(LossOnCuda, OfPixelsHasTheValuesAndGradientsOfTheCpu) {
  const Tensor pixels =
      Tensor::from({0, 2, 1, 3, 3, 0, 1, 1, 2, 2, 3, 0}, {2, 2, 3}).to(DType::i32);
  for (const auto& [name, loss] : testing::all_losses(4)) {
    SCOPED_TRACE(name);
    testing::expect_gradients_like_cpu(
        [&, &loss = loss](const auto& v) { return loss(v[0], pixels.to(v[0].device())); },
        {testing::normal({2, 4, 2, 3}, DType::f32, 1)}, testing::few_ulp(DType::f32, 64));
  }
}

TEST_F(LossOnCuda, ACompiledStepIsRecordable) {
  const Tensor x = testing::normal({5, 6}, DType::f32, 3);
  for (const auto& [name, loss] : testing::all_losses(4)) {
    LayerContext context, same;
    Linear on_cpu({.in_features = 6, .out_features = 4}, context);
    Linear on_cuda({.in_features = 6, .out_features = 4}, same);
    on_cuda.to(testing::cuda());
    std::string why;
    const auto plan =
        StepPlan::make(on_cuda, x.shape(), PlanMode::training, &why, {}, /*to_show=*/false, loss);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_EQ(plan->why_not_recordable(), "") << name;
    const Variable y = on_cpu.forward(Variable(x));
    const Variable want = loss(y, labels());
    want.backward();
    EXPECT_NEAR(plan->forward(x.to(testing::cuda()), labels()), want.value().item(), 1e-5) << name;
    plan->backward();
    EXPECT_EQ(plan->correct(), loss.correct(y.value(), labels())) << name;
    EXPECT_TRUE(
        testing::near(on_cuda.weight().grad().to(Device{}), on_cpu.weight().grad(), 1e-6, 1e-4))
        << name;
  }
}

}  // namespace
}  // namespace convscope
