// SPDX-License-Identifier: Apache-2.0
// deform_layer_cuda_test.cpp: tests the layer on `device cuda`. Its steps, dynamic and compiled,
// agree with those of the CPU; it learns in each precision; inputs may be slices of channels.
#include <gtest/gtest.h>

#include "framework/ops/reduce.h"
#include "layers/deform_conv2d/channel_slice.h"
#include "layers/deform_conv2d/deform_conv2d.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "tests/layers/deform_conv2d/deform_network.h"
#include "tests/support/cuda.h"

namespace convscope::testing {
namespace {

using DeformLayerOnCuda = CudaTest;

const Shape kImages{4, 6, 7, 8};

std::vector<std::vector<LayerSpec>> networks() {
  const LayerSpec conv =
      layer("conv2d", "c", {{"out_channels", std::int64_t{12}}, {"kernel_size", Ints{3}}});
  const Pairs by_columns{{"algorithm", std::string("im2col_gemm")}};
  return {ending({deform("d", 8), layer("relu", "r")}),
          ending({conv, layer("relu", "r"), deform("d", 8, by_columns)}),
          ending({conv, deform("d", 8, {{"mask", false}}), layer("relu", "r")}),
          ending({conv, deform("d", 8,
                               {{"groups", std::int64_t{2}},
                                {"offset_groups", std::int64_t{3}},
                                {"stride", Ints{2, 1}},
                                {"bias", false}})})};
}

struct Result {
  double loss = 0;
  std::vector<Tensor> tensors;  // gradients, then an inference, on the CPU
};

// Runs two training steps without an update in between and keeps the second result, then runs an
// inference.
Result run(const std::vector<LayerSpec>& specs, Device device, bool planned) {
  const auto model = network(specs, kImages, device);
  move_branches(*model);
  std::string why = "dynamic";
  const auto plan = planned ? StepPlan::make(*model, kImages, PlanMode::training, &why) : nullptr;
  EXPECT_EQ(plan != nullptr, planned) << why;
  Result out;
  for (std::uint64_t step = 0; step < 2; ++step) {
    model->zero_grad();
    const Tensor x = normal(kImages, DType::f32, step + 1).to(device);
    if (plan != nullptr) {
      out.loss = plan->forward(x, labels(kImages[0]));
      plan->backward();
    } else {
      const Variable loss =
          softmax_cross_entropy(model->forward(Variable(x)), labels(kImages[0]).to(device));
      loss.backward();
      out.loss = loss.value().item();
    }
  }
  for (const NamedParameter& one : model->parameters()) {
    out.tensors.push_back(one.variable.grad().to(Device{}));
  }
  const NoGrad no_grad;
  const Tensor x = normal(kImages, DType::f32, 3).to(device);
  if (planned) {
    const auto inference = StepPlan::make(*model, kImages, PlanMode::inference, &why);
    EXPECT_NE(inference, nullptr) << why;
    inference->prepare();
    out.tensors.push_back(inference->infer(x).to(Device{}).clone());
  } else {
    out.tensors.push_back(model->forward(Variable(x)).value().to(Device{}));
  }
  return out;
}

TEST_F(DeformLayerOnCuda, MakesTheStepsOfTheCpuDynamicAndPlanned) {
  for (const std::vector<LayerSpec>& specs : networks()) {
    const Result want = run(specs, Device{}, false);
    for (const bool planned : {false, true}) {
      SCOPED_TRACE(planned ? "planned" : "dynamic");
      const Result got = run(specs, cuda(), planned);
      EXPECT_NEAR(got.loss, want.loss, 1e-5);
      ASSERT_EQ(got.tensors.size(), want.tensors.size());
      for (std::size_t i = 0; i < want.tensors.size(); ++i) {
        EXPECT_TRUE(near(got.tensors[i], want.tensors[i], 2e-5, 1e-4)) << i;
      }
    }
  }
}

TEST_F(DeformLayerOnCuda, PlannedStepsHaveTheSameBitsTwice) {
  const std::vector<LayerSpec> specs = networks()[1];
  const Result first = run(specs, cuda(), true), second = run(specs, cuda(), true);
  EXPECT_EQ(first.loss, second.loss);
  for (std::size_t i = 0; i < first.tensors.size(); ++i) {
    EXPECT_TRUE(same_bits(first.tensors[i], second.tensors[i])) << i;
  }
}

// The same test as on the CPU (deform_layer_test.cpp).
TEST_F(DeformLayerOnCuda, FitsABatchInThirtySteps) {
  const Shape input{8, 2, 8, 8};
  const std::vector<LayerSpec> specs =
      ending({deform("d", 8), layer("relu", "r"), deform("e", 8, {{"mask", false}})});
  const Tensor x = normal(input, DType::f32).to(cuda());
  for (const ComputePrecision precision : kComputePrecisions) {
    SCOPED_TRACE(name_of(precision));
    const auto model = network(specs, input, cuda(), precision);
    std::string why;
    const auto plan = StepPlan::make(*model, input, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    const double loss = loss_after(30, *model, [&] {
      const double now = plan->forward(x, labels(8));
      plan->backward();
      return now;
    });
    EXPECT_LT(loss, 0.05);
  }
}

// With operands rounded to half precision or TF32, results differ slightly from f32. Weights and
// gradients stay f32.
TEST_F(DeformLayerOnCuda, RoundsItsOperandsToThePrecision) {
  const Shape input{2, 16, 9, 8};
  const std::vector<LayerSpec> specs{deform("d", 8)};
  const Tensor x = normal(input, DType::f32).to(cuda());
  const auto step = [&](ComputePrecision precision) {
    const auto model = network(specs, input, cuda(), precision);
    move_branches(*model);
    const Variable y = model->forward(Variable(x));
    EXPECT_EQ(y.dtype(), DType::f32);
    mean(mul(y, y)).backward();
    std::vector<Tensor> out{y.value().to(Device{})};
    for (const NamedParameter& one : model->parameters()) {
      EXPECT_EQ(one.variable.grad().dtype(), DType::f32) << one.name;
      out.push_back(one.variable.grad().to(Device{}));
    }
    return out;
  };
  const std::vector<Tensor> exact = step(ComputePrecision::f32);
  struct Case {
    ComputePrecision precision;
    double unit;  // relative error of a rounded operand
  };
  for (const Case& one :
       {Case{ComputePrecision::tf32, 0x1p-11}, Case{ComputePrecision::f16, 0x1p-11},
        Case{ComputePrecision::bf16, 0x1p-8}}) {
    const std::vector<Tensor> rounded = step(one.precision);
    EXPECT_FALSE(same_bits(rounded[0], exact[0])) << name_of(one.precision);
    for (std::size_t i = 0; i < 3; ++i) {  // y, dw, db: the gradient of the branch has kinks
      EXPECT_TRUE(near(rounded[i], exact[i], 40 * one.unit, 40 * one.unit))
          << name_of(one.precision) << ", " << i;
    }
  }
}

TEST_F(DeformLayerOnCuda, SlicesChannelsAsTheCpuDoes) {
  const Shape whole{3, 7, 5, 3};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    const Tensor x = normal(whole, DType::f32, 1).to(dtype);
    for (const auto& [first, count] :
         {std::pair<std::int64_t, std::int64_t>{0, 7}, {0, 2}, {3, 1}, {5, 2}}) {
      const Shape part{3, count, 5, 3};
      const Tensor dy = normal(part, DType::f32, 2).to(dtype);
      Tensor y[2], dx[2];
      for (const bool there : {false, true}) {
        const Device device = there ? cuda() : Device{};
        y[there] = Tensor::full(part, 7.0, dtype).to(device).clone();
        dx[there] = Tensor::full(whole, 7.0, dtype).to(device).clone();
        channel_slice_kernel.get(device)(x.to(device), first, y[there]);
        channel_slice_gradient_kernel.get(device)(dy.to(device), first, dx[there]);
      }
      EXPECT_TRUE(same_bits(y[1].to(Device{}), y[0])) << name_of(dtype) << " from " << first;
      EXPECT_TRUE(same_bits(dx[1].to(Device{}), dx[0])) << name_of(dtype) << " from " << first;
    }
  }
}

}  // namespace
}  // namespace convscope::testing
