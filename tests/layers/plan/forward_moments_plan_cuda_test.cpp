// SPDX-License-Identifier: Apache-2.0
// forward_moments_plan_cuda_test.cpp: tests compiled training steps in which a convolution also
// computes mean and variance for the following batch norm. Checks which convolutions do so, and
// that a step agrees with the dynamic graph.
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
using testing::normal;
using ForwardMomentsPlanOnCuda = testing::CudaTest;

using Ints = std::vector<std::int64_t>;
const Shape kInput{4, 3, 13, 12};
constexpr const char* kSaid = "; statistics of y";

LayerSpec layer(const char* type, const char* name,
                std::initializer_list<std::pair<const char*, OptionValue>> pairs = {}) {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : pairs) out.options.set(key, value);
  return out;
}

LayerSpec conv(const char* name, std::int64_t channels, std::int64_t kernel = 3,
               std::int64_t stride = 1, std::int64_t groups = 1, bool bias = false) {
  return layer("conv2d", name,
               {{"out_channels", channels},
                {"kernel_size", Ints{kernel}},
                {"stride", Ints{stride}},
                {"padding", Ints{kernel / 2}},
                {"groups", groups},
                {"bias", bias}});
}

// Builds a network in which three convolutions are wide enough to compute moments, and are followed
// by a batch norm. One of the three is followed by a residual sum, and one has a bias. c4 (followed
// by a ReLU) and d5 (with groups) must not compute moments.
std::shared_ptr<Module> build(ComputePrecision precision, const char* layout,
                              bool residual = true) {
  LayerContext context;
  context.seed = 3;
  context.device = cuda();
  context.precision = precision;
  context.conv_policy = [layout](const std::string&) -> Conv2dPolicy {
    // For layers as small as these `auto` chooses another algorithm.
    return {"implicit_gemm_tma,auto", "auto", "auto", layout};
  };
  auto net = std::make_shared<Sequential>();
  Shape shape = kInput;
  const auto add = [&](const char* name, const std::vector<LayerSpec>& specs, bool beside = false) {
    std::shared_ptr<Module> part = build_layers(specs, shape, context);
    shape = part->output_shape(shape);
    if (beside) part = std::make_shared<testing::ResidualBlock>(part);
    net->add(name, part);
  };
  add("stem", {conv("c0", 24, 5), layer("batch_norm2d", "b0"), layer("relu", "r0")});
  add("block", {conv("c1", 24, 3, 1, 1, true), layer("batch_norm2d", "b1")}, residual);
  add("rest",
      {layer("relu", "r1"), conv("c2", 72, 3, 2), layer("batch_norm2d", "b2"), layer("relu", "r2"),
       conv("c4", 24, 1), layer("relu", "r4"), conv("d5", 24, 3, 1, 24),
       layer("batch_norm2d", "b5"),
       layer("adaptive_avg_pool2d", "p", {{"output_size", Ints{1, 1}}}), layer("flatten", "flat"),
       layer("linear", "f", {{"out_features", std::int64_t{5}}})});
  return net;
}

int said(const std::string& text) {
  int found = 0;
  for (auto at = text.find(kSaid); at != std::string::npos; at = text.find(kSaid, at + 1)) ++found;
  return found;
}

std::unique_ptr<StepPlan> planned(Module& model, PlanMode mode = PlanMode::training) {
  std::string why;
  auto plan = StepPlan::make(model, kInput, mode, &why);
  EXPECT_NE(plan, nullptr) << why;
  return plan;
}

struct Result {
  double loss = 0;
  std::vector<Tensor> gradients, statistics;  // on the CPU, f64
};

Result run(const std::shared_ptr<Module>& model, StepPlan* plan) {
  model->zero_grad();
  const Tensor x = normal(kInput, DType::f32, 40).to(cuda());
  const Tensor labels =
      Tensor::from<std::int32_t>(std::vector<std::int32_t>{1, 4, 0, 2}, {kInput[0]});
  Result out;
  if (plan != nullptr) {
    out.loss = plan->forward(x, labels);
    plan->backward();
  } else {
    const Variable loss = softmax_cross_entropy(model->forward(Variable(x)), labels.to(cuda()));
    out.loss = loss.value().item();
    loss.backward();
  }
  for (const NamedParameter& p : model->parameters()) {
    out.gradients.push_back(p.variable.grad().to(Device{}).to(DType::f64));
  }
  for (const NamedTensor& b : model->buffers()) {
    out.statistics.push_back(b.tensor.to(Device{}).to(DType::f64));
  }
  return out;
}

// Distance of all gradients together: |a - b| / |b|.
double relative_distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    for (std::int64_t j = 0; j < b[i].numel(); ++j) {
      difference += std::pow(a[i].at(j) - b[i].at(j), 2);
      size += std::pow(b[i].at(j), 2);
    }
  }
  return std::sqrt(difference / size);
}

struct Precision {
  ComputePrecision precision;
  const char* layout;
  double unit;  // of a rounding
  int said;     // convolutions that compute statistics
};
constexpr Precision kPrecisions[] = {{ComputePrecision::bf16, "auto", 0x1p-8, 0},
                                     {ComputePrecision::f16, "auto", 0x1p-11, 0},
                                     {ComputePrecision::tf32, "nchw16c", 0x1p-11, 3}};

// About eight layers follow each other, and each rounds its output by at most one unit of the type.
// Gradients pass through as many layers again, and a few ReLUs may switch. Running statistics
// depend only on the forward pass.
TEST_F(ForwardMomentsPlanOnCuda, AStepDoesWhatTheDynamicGraphDoesUpToRoundings) {
  for (const auto& [precision, layout, unit, expected] : kPrecisions) {
    for (const bool residual : {false, true}) {
      const auto model = build(precision, layout, residual);
      const auto plan = planned(*model);
      ASSERT_NE(plan, nullptr);
      EXPECT_EQ(plan->why_not_recordable(), "") << plan->text();
      EXPECT_EQ(said(plan->text()), expected) << plan->text();
      const Result got = run(model, plan.get());
      const Result want = run(build(precision, layout, residual), nullptr);
      EXPECT_NEAR(got.loss, want.loss, 12 * unit * want.loss) << plan->text();
      EXPECT_LT(relative_distance(got.gradients, want.gradients), 8 * 12 * unit) << plan->text();
      EXPECT_LT(relative_distance(got.statistics, want.statistics), 12 * unit) << plan->text();
      const Result again = run(model, plan.get());
      EXPECT_EQ(got.loss, again.loss);
      for (std::size_t i = 0; i < got.gradients.size(); ++i) {
        EXPECT_TRUE(testing::same_bits(again.gradients[i], got.gradients[i]));
      }
    }
  }
}

TEST_F(ForwardMomentsPlanOnCuda, OnlyWhereABatchNormTakesTheStatisticsOfTheBatch) {
  const auto model = build(ComputePrecision::tf32, "nchw16c");
  model->eval();
  EXPECT_EQ(said(planned(*model, PlanMode::inference)->text()), 0);
  model->train(true);
  EXPECT_EQ(said(planned(*model)->text()), 3);
  EXPECT_EQ(said(planned(*build(ComputePrecision::f32, "auto"))->text()), 0);
  EXPECT_EQ(said(planned(*build(ComputePrecision::tf32, "nchw"))->text()), 0);
}

// The residual around the batch norm reads its input, too.
TEST_F(ForwardMomentsPlanOnCuda, NotWhereSomebodyElseReadsTheImagesToo) {
  LayerContext context;
  context.seed = 3;
  context.device = cuda();
  context.precision = ComputePrecision::tf32;
  context.conv_policy = [](const std::string&) -> Conv2dPolicy {
    return {"implicit_gemm_tma,auto", "auto", "auto", "nchw16c"};
  };
  auto net = std::make_shared<Sequential>();
  net->add("conv", build_layers({conv("c0", 24)}, kInput, context));
  const Shape shape{kInput[0], 24, kInput[2], kInput[3]};
  net->add("block", std::make_shared<testing::ResidualBlock>(
                        build_layers({layer("batch_norm2d", "b0")}, shape, context)));
  net->add("rest", build_layers({layer("adaptive_avg_pool2d", "p", {{"output_size", Ints{1, 1}}}),
                                 layer("flatten", "flat"),
                                 layer("linear", "f", {{"out_features", std::int64_t{5}}})},
                                shape, context));
  const auto plan = planned(*net);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("implicit_gemm_tma nhwc"), std::string::npos);
  EXPECT_EQ(said(plan->text()), 0) << plan->text();
}

}  // namespace
}  // namespace convscope
