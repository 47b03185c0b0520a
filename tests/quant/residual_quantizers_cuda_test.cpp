// SPDX-License-Identifier: Apache-2.0
// residual_quantizers_cuda_test.cpp: tests quantisers at the sums of residual blocks on a GPU.
// Dynamic and compiled steps agree with the CPU, and a step can be recorded.
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/residual.h"
#include "quant/quantize_network.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::near;
using testing::normal;
using ResidualQuantizersOnCuda = testing::CudaTest;

const Shape kInput{3, 4, 8, 8};

// The network has two blocks: the shortcut of one has layers, and the other adds x itself.
std::shared_ptr<Module> network(Device device) {
  LayerContext context;
  context.seed = 3;
  context.device = device;
  context.conv_policy = [](const std::string&) -> Conv2dPolicy {
    return {"im2col_gemm", "im2col_gemm", "im2col_gemm"};
  };
  auto out = std::make_shared<Sequential>();
  out->add("first", basic_block(4, 6, 2, "first", context));
  out->add("second", basic_block(6, 6, 1, "second", context));
  Options linear;
  linear.set("out_features", std::int64_t{5});
  out->add("rest", build_layers({{.type = "flatten", .name = "flat", .options = {}},
                                 {.type = "linear", .name = "f", .options = linear}},
                                {3, 6, 4, 4}, context));
  apply_quantization(*out, {}, device);
  return out;
}

struct Result {
  double loss = 0;
  std::vector<Tensor> gradients;
};

Result run(Device device, bool planned) {
  const auto model = network(device);
  const Tensor labels = Tensor::from<std::int32_t>(std::vector<std::int32_t>{1, 4, 0}, {3});
  const auto dynamic_step = [&](std::uint64_t seed) {
    model->zero_grad();
    const Variable loss = softmax_cross_entropy(
        model->forward(Variable(normal(kInput, DType::f32, seed).to(device))), labels.to(device));
    loss.backward();
    return loss.value().item();
  };
  Result out;
  out.loss = dynamic_step(1);  // calibrates
  if (planned) {
    std::string why;
    const auto plan = StepPlan::make(*model, kInput, PlanMode::training, &why);
    EXPECT_NE(plan, nullptr) << why;
    EXPECT_EQ(plan->why_not_recordable(), "");
    model->zero_grad();
    out.loss = plan->forward(normal(kInput, DType::f32, 2).to(device), labels.to(device));
    plan->backward();
  } else {
    out.loss = dynamic_step(2);
  }
  for (const NamedParameter& p : model->parameters()) {
    out.gradients.push_back(p.variable.grad().to(Device{}));
  }
  return out;
}

// A sum near the border of two codes may round to either code. With 8 bits this happens to one of
// some hundred values.
TEST_F(ResidualQuantizersOnCuda, TrainAsOnTheCpuDynamicAndPlanned) {
  const Result want = run(Device{}, false);
  for (const bool planned : {false, true}) {
    SCOPED_TRACE(planned ? "planned" : "dynamic");
    const Result got = run(cuda(), planned);
    EXPECT_NEAR(got.loss, want.loss, 2e-3);
    ASSERT_EQ(got.gradients.size(), want.gradients.size());
    for (std::size_t i = 0; i < want.gradients.size(); ++i) {
      EXPECT_TRUE(near(got.gradients[i], want.gradients[i], 1e-2, 2e-2)) << i;
    }
  }
}

}  // namespace
}  // namespace convscope
