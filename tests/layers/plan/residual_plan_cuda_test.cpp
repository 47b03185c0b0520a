// SPDX-License-Identifier: Apache-2.0
// residual_plan_cuda_test.cpp: tests a network with every kind of layer on `device cuda`, compiled
// and dynamic, against the CPU.
#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"
#include "tests/support/residual_block.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::near;
using testing::normal;
using ResidualPlanOnCuda = testing::CudaTest;

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kImages = 3;
const Shape kInput{kImages, 4, 8, 8};

LayerSpec layer(const char* type, const char* name,
                std::initializer_list<std::pair<const char*, OptionValue>> pairs = {}) {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : pairs) out.options.set(key, value);
  return out;
}

LayerSpec conv(const char* name) {
  return layer("conv2d", name,
               {{"out_channels", std::int64_t{4}}, {"kernel_size", Ints{3}}, {"padding", Ints{1}}});
}

std::shared_ptr<Module> network(Device device) {
  LayerContext context;
  context.seed = 3;
  context.device = device;
  context.conv_policy = [](const std::string&) -> Conv2dPolicy {
    return {"im2col_gemm", "im2col_gemm", "im2col_gemm"};
  };
  auto net = std::make_shared<Sequential>();
  net->add("stem", build_layers({conv("c0"), layer("batch_norm2d", "b0"), layer("relu", "r0")},
                                kInput, context));
  net->add("block", std::make_shared<testing::ResidualBlock>(
                        build_layers({conv("c1"), layer("batch_norm2d", "b1"), layer("relu6", "r1"),
                                      conv("c2"), layer("batch_norm2d", "b2")},
                                     kInput, context)));
  net->add("rest",
           build_layers(
               {layer("relu", "r2"), layer("dropout", "d", {{"p", 0.25}}),
                layer("max_pool2d", "p1", {{"kernel_size", Ints{2}}}), layer("tanh", "t"),
                layer("avg_pool2d", "p2", {{"kernel_size", Ints{2}}}), layer("flatten", "flat"),
                layer("linear", "f1", {{"out_features", std::int64_t{12}}}), layer("relu", "r3"),
                layer("linear", "f2", {{"out_features", std::int64_t{5}}})},
               kInput, context));
  return net;
}

Tensor labels() {
  return Tensor::from<std::int32_t>(std::vector<std::int32_t>{1, 4, 0}, {kImages});
}

struct Result {
  double loss = 0;
  std::vector<Tensor> tensors;  // gradients, then running statistics, on the CPU
};

// Runs two training steps without an update in between. The running statistics change twice; the
// gradients are those of the second step.
Result run(Device device, bool planned) {
  const auto model = network(device);
  std::string why = "dynamic";
  const auto plan = planned ? StepPlan::make(*model, kInput, PlanMode::training, &why) : nullptr;
  EXPECT_EQ(plan != nullptr, planned) << why;
  Result out;
  for (int step = 0; step < 2; ++step) {
    model->set_step(step);
    model->zero_grad();
    const Tensor x = normal(kInput, DType::f32, 40 + static_cast<std::uint64_t>(step)).to(device);
    if (plan != nullptr) {
      out.loss = plan->forward(x, labels());
      plan->backward();
    } else {
      const Variable loss = softmax_cross_entropy(model->forward(Variable(x)), labels().to(device));
      out.loss = loss.value().item();
      loss.backward();
    }
  }
  for (const NamedParameter& p : model->parameters()) {
    out.tensors.push_back(p.variable.grad().to(Device{}));
  }
  for (const NamedTensor& b : model->buffers()) out.tensors.push_back(b.tensor.to(Device{}));
  return out;
}

// The tolerances allow a few roundings in each of a dozen layers. Gradients are sums over some
// hundred pixels.
TEST_F(ResidualPlanOnCuda, TrainsAsTheCpuDoesPlannedAndDynamic) {
  const Result want = run(Device{}, false);
  for (const bool planned : {false, true}) {
    SCOPED_TRACE(planned ? "planned" : "dynamic");
    const Result got = run(cuda(), planned);
    EXPECT_NEAR(got.loss, want.loss, 1e-5);
    ASSERT_EQ(got.tensors.size(), want.tensors.size());
    for (std::size_t i = 0; i < want.tensors.size(); ++i) {
      EXPECT_TRUE(near(got.tensors[i], want.tensors[i], 2e-5, 1e-4)) << i;
    }
  }
}

TEST_F(ResidualPlanOnCuda, GivesTheSameBitsTwice) {
  const Result first = run(cuda(), true);
  const Result second = run(cuda(), true);
  EXPECT_EQ(first.loss, second.loss);
  for (std::size_t i = 0; i < first.tensors.size(); ++i) {
    EXPECT_TRUE(testing::same_bits(second.tensors[i], first.tensors[i])) << i;
  }
}

TEST_F(ResidualPlanOnCuda, FoldsBatchNormForInference) {
  Tensor results[3];
  for (int i = 0; i < 3; ++i) {
    const Device device = i == 0 ? Device{} : cuda();
    const auto model = network(device);
    model->forward(Variable(normal(kInput, DType::f32, 7).to(device)));  // changes the statistics
    model->eval();
    const Tensor x = normal(kInput, DType::f32, 8).to(device);
    if (i < 2) {
      const NoGrad no_grad;
      results[i] = model->forward(Variable(x)).value().to(Device{});
      continue;
    }
    std::string why;
    const auto plan = StepPlan::make(*model, kInput, PlanMode::inference, &why);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_NE(plan->text().find("+ batch_norm2d"), std::string::npos) << plan->text();
    plan->prepare();
    results[i] = plan->infer(x).to(Device{});
  }
  EXPECT_TRUE(near(results[1], results[0], 1e-5, 1e-5));
  EXPECT_TRUE(near(results[2], results[0], 1e-5, 1e-5));
}

}  // namespace
}  // namespace convscope
