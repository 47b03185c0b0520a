// SPDX-License-Identifier: Apache-2.0
// half_plan_cuda_test.cpp: tests compiled steps in half precision and in tf32 on `device cuda`.
// Images are NHWC, in fp16/bf16 or f32. A step agrees with the dynamic graph, up to the rounding of
// values between layers or of operands.
#include "framework/ops/elementwise.h"
#include "layers/conv2d/shared/cuda/reads_f32.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/dispatch/layout/half_operands.h"
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
using HalfPlanOnCuda = testing::CudaTest;

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kImages = 4;
const Shape kInput{kImages, 3, 12, 12};

LayerSpec layer(const char* type, const char* name,
                std::initializer_list<std::pair<const char*, OptionValue>> pairs = {}) {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : pairs) out.options.set(key, value);
  return out;
}

LayerSpec conv(const char* name, std::int64_t channels, std::int64_t kernel = 3,
               std::int64_t stride = 1, std::int64_t groups = 1) {
  return layer("conv2d", name,
               {{"out_channels", channels},
                {"kernel_size", Ints{kernel}},
                {"stride", Ints{stride}},
                {"padding", Ints{kernel / 2}},
                {"groups", groups},
                {"bias", false}});
}

struct Network {
  std::vector<LayerSpec> stem, block, rest;  // `block`, if not empty, has a residual
};

// A small ResNet: strides, a residual, all pools.
Network resnet() {
  return {
      {conv("c0", 12, 5), layer("batch_norm2d", "b0"), layer("relu", "r0"),
       layer("max_pool2d", "p0",
             {{"kernel_size", Ints{3}}, {"stride", Ints{2}}, {"padding", Ints{1}}})},
      {conv("c1", 12), layer("batch_norm2d", "b1"), layer("relu", "r1"), conv("c2", 12),
       layer("batch_norm2d", "b2")},
      {layer("relu", "r2"), conv("c3", 21, 3, 2), layer("batch_norm2d", "b3"), layer("relu", "r3"),
       layer("avg_pool2d", "p3", {{"kernel_size", Ints{2}}, {"stride", Ints{1}}}),
       layer("adaptive_avg_pool2d", "p4", {{"output_size", Ints{1, 1}}}), layer("flatten", "flat"),
       layer("linear", "f", {{"out_features", std::int64_t{5}}})}};
}

// A small MobileNet with depthwise layers of stride 1 and 2, 1x1 layers, and a bounded activation.
Network mobilenet() {
  return {{conv("c0", 16, 3, 2), layer("batch_norm2d", "b0"), layer("relu", "r0"),
           conv("d1", 16, 3, 1, 16), layer("batch_norm2d", "b1"), layer("relu6", "r1"),
           conv("c2", 24, 1), layer("batch_norm2d", "b2"), layer("relu", "r2"),
           conv("d3", 24, 3, 2, 24), layer("batch_norm2d", "b3"), layer("relu", "r3")},
          {},
          {conv("c4", 20, 1), layer("batch_norm2d", "b4"), layer("relu", "r4"),
           layer("adaptive_avg_pool2d", "p4", {{"output_size", Ints{1, 1}}}),
           layer("flatten", "flat"), layer("linear", "f", {{"out_features", std::int64_t{5}}})}};
}

std::shared_ptr<Module> build(const Network& network, ComputePrecision precision,
                              const char* layout = "auto", const char* algorithm = "auto") {
  LayerContext context;
  context.seed = 3;
  context.device = cuda();
  context.precision = precision;
  context.conv_policy = [layout, algorithm](const std::string&) -> Conv2dPolicy {
    return {algorithm, algorithm, algorithm, layout};
  };
  auto net = std::make_shared<Sequential>();
  Shape shape = kInput;
  const auto add = [&](const char* name, const std::vector<LayerSpec>& specs, bool residual) {
    if (specs.empty()) return;
    std::shared_ptr<Module> part = build_layers(specs, shape, context);
    shape = part->output_shape(shape);
    if (residual) part = std::make_shared<testing::ResidualBlock>(part);
    net->add(name, part);
  };
  add("stem", network.stem, false);
  add("block", network.block, true);
  add("rest", network.rest, false);
  return net;
}

Tensor labels() {
  return Tensor::from<std::int32_t>(std::vector<std::int32_t>{1, 4, 0, 2}, {kImages});
}

struct Result {
  double loss = 0;
  std::vector<Tensor> gradients;  // of all parameters, on the CPU
};

enum class Data { normal, offset, heavy_tails };

Tensor images(Data data) {
  Tensor out = normal(kInput, DType::f32, 40);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    float& v = out.data<float>()[i];
    if (data == Data::offset) v += 10;
    if (data == Data::heavy_tails) v = std::sinh(2 * v);
  }
  return out.to(cuda());
}

Result run(const std::shared_ptr<Module>& model, StepPlan* plan, Data data = Data::normal) {
  model->zero_grad();
  const Tensor x = images(data);
  Result out;
  if (plan != nullptr) {
    out.loss = plan->forward(x, labels());
    plan->backward();
  } else {
    const Variable loss = softmax_cross_entropy(model->forward(Variable(x)), labels().to(cuda()));
    out.loss = loss.value().item();
    loss.backward();
  }
  for (const NamedParameter& p : model->parameters()) {
    out.gradients.push_back(p.variable.grad().to(Device{}).to(DType::f64));
  }
  return out;
}

// Distance of all gradients together: |a - b| / |b|.
double relative_distance(const Result& a, const Result& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.gradients.size(); ++i) {
    for (std::int64_t j = 0; j < b.gradients[i].numel(); ++j) {
      difference += std::pow(a.gradients[i].at(j) - b.gradients[i].at(j), 2);
      size += std::pow(b.gradients[i].at(j), 2);
    }
  }
  return std::sqrt(difference / size);
}

std::unique_ptr<StepPlan> planned(Module& model, PlanMode mode = PlanMode::training) {
  std::string why;
  auto plan = StepPlan::make(model, kInput, mode, &why);
  EXPECT_NE(plan, nullptr) << why;
  return plan;
}

struct Precision {
  ComputePrecision precision;
  double unit;  // of a rounding
};
constexpr Precision kPrecisions[] = {{ComputePrecision::bf16, 0x1p-8},
                                     {ComputePrecision::f16, 0x1p-11}};

// About a dozen layers follow each other in the forward pass, and as many in the backward pass.
// Each rounds its output by at most one unit of the type, and its operands add some units more. An
// activation may switch for small numbers, so the bound of gradients is eight times as large.
TEST_F(HalfPlanOnCuda, AStepDoesWhatTheDynamicGraphDoesUpToRoundings) {
  for (const Network& network : {resnet(), mobilenet()}) {
    for (const auto& [precision, unit] : kPrecisions) {
      const auto model = build(network, precision);
      const auto plan = planned(*model);
      ASSERT_NE(plan, nullptr);
      EXPECT_EQ(plan->why_not_recordable(), "") << plan->text();
      const Result got = run(model, plan.get());
      const auto again = build(network, precision);
      const Result want = run(again, nullptr);
      EXPECT_NEAR(got.loss, want.loss, 12 * unit * want.loss) << plan->text();
      EXPECT_LT(relative_distance(got, want), 8 * 12 * unit) << plan->text();
      const Result exact = run(build(network, ComputePrecision::f32), nullptr);
      EXPECT_NEAR(got.loss, exact.loss, 12 * unit * exact.loss);
      EXPECT_LT(relative_distance(got, exact), 8 * 12 * unit);
    }
  }
}

TEST_F(HalfPlanOnCuda, ImagesAreHalfPrecisionNhwcBetweenTheEnds) {
  const auto model = build(resnet(), ComputePrecision::bf16);
  const auto plan = planned(*model);
  // Three layout conversions: the images in the forward pass, and the input of the linear layer in
  // both passes.
  EXPECT_EQ(plan->conversions(), 3) << plan->text();
  int layers = 0;
  for (const RanKernel& kernel : plan->kernels()) {
    if (kernel.layer.find(".c") == std::string::npos) continue;
    EXPECT_EQ(kernel.layout, ActivationLayout::nhwc) << kernel.layer;
    EXPECT_FALSE(kernel.dynamic);
    ++layers;
  }
  EXPECT_EQ(layers, 11);  // four convolutions; the first one has no dx
  EXPECT_NE(plan->text().find("copy to nhwc bf16"), std::string::npos) << plan->text();
  EXPECT_NE(plan->text().find("copy to nchw"), std::string::npos);
}

// In depthwise layers, with stride 1 or 2, one kernel reads dy once and computes both dx and dw. A
// layer with frozen weights needs no dw, so another kernel computes its dx.
TEST_F(HalfPlanOnCuda, DepthwiseLayersMakeBothGradientsInOnePass) {
  const auto model = build(mobilenet(), ComputePrecision::bf16);
  const auto plan = planned(*model);
  const std::string in_one = "conv2d depthwise_nhwc nhwc; dx and dw in one pass";
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (auto at = text.find(in_one); at != std::string::npos; at = text.find(in_one, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count(plan->text()), 2) << plan->text();
  KernelCounter counter;
  run(model, plan.get());
  int depthwise = 0;
  for (const auto& [ran, times] : counter.runs()) {
    if (ran.kernel != "depthwise_nhwc") continue;
    EXPECT_EQ(times, 1) << ran.direction << " of " << ran.problem;
    ++depthwise;
  }
  EXPECT_EQ(depthwise, 6);  // two layers, three directions

  for (NamedParameter& p : model->parameters()) {
    if (p.name.find("d3") != std::string::npos) p.variable.set_requires_grad(false);
  }
  EXPECT_EQ(count(planned(*model)->text()), 1);
}

// Dropout and sigmoid have no kernels for fp16/bf16, so the compiled step converts images before
// and after them.
TEST_F(HalfPlanOnCuda, OpsWithoutHalfPrecisionReadF32InNchw) {
  const Network network{
      {conv("c0", 8), layer("sigmoid", "s"), conv("c1", 8), layer("dropout", "d", {{"p", 0.5}})},
      {},
      {conv("c2", 8), layer("tanh", "t"), layer("flatten", "flat"),
       layer("linear", "f", {{"out_features", std::int64_t{5}}})}};
  const auto model = build(network, ComputePrecision::bf16);
  const auto plan = planned(*model);
  EXPECT_EQ(plan->why_not_recordable(), "");
  EXPECT_EQ(plan->conversions(), 1 + 5 * 2) << plan->text();
  const Result got = run(model, plan.get());
  const Result want = run(build(network, ComputePrecision::bf16), nullptr);
  EXPECT_NEAR(got.loss, want.loss, 12 * 0x1p-8 * want.loss);
  EXPECT_LT(relative_distance(got, want), 8 * 12 * 0x1p-8);
}

TEST_F(HalfPlanOnCuda, AnInferenceFoldsBatchNormAndTakesTheResidual) {
  for (const Network& network : {resnet(), mobilenet()}) {
    const auto model = build(network, ComputePrecision::bf16);
    model->eval();
    const auto plan = planned(*model, PlanMode::inference);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(plan->conversions(), 2) << plan->text();
    const Tensor x = normal(kInput, DType::f32, 40).to(cuda());
    const NoGrad no_grad;
    const Tensor want = model->forward(Variable(x)).value().to(Device{});
    plan->prepare();
    const Tensor got = plan->infer(x).to(Device{});
    double largest = 0;
    for (std::int64_t i = 0; i < want.numel(); ++i)
      largest = std::max(largest, std::abs(want.at(i)));
    EXPECT_TRUE(testing::near(got, want, 12 * 0x1p-8 * largest, 0)) << plan->text();
  }
}

TEST_F(HalfPlanOnCuda, ALayoutOfPlanesIsHonoured) {
  const auto model = build(resnet(), ComputePrecision::bf16, "nchw");
  const auto plan = planned(*model);
  EXPECT_NE(plan->why_not_recordable(), "");
  EXPECT_EQ(plan->conversions(), 0) << plan->text();
}

TEST_F(HalfPlanOnCuda, TwoStepsGiveTheSameBits) {
  const auto model = build(mobilenet(), ComputePrecision::bf16);
  const auto plan = planned(*model);
  const Result first = run(model, plan.get());
  const Result second = run(model, plan.get());
  EXPECT_EQ(first.loss, second.loss);
  for (std::size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(testing::same_bits(first.gradients[i], second.gradients[i]));
  }
}

// ---- tf32 --------------------------------------------------------------------------------------

// A small VGG without batch norms: convolutions have biases, and operands are made from the results
// of other convolutions.
Network vgg() {
  LayerSpec first = conv("c0", 16), second = conv("c1", 24);
  first.options.set("bias", true);
  second.options.set("bias", true);
  return {{first, layer("relu", "r0"), layer("max_pool2d", "p0", {{"kernel_size", Ints{2}}}),
           second, layer("relu", "r1"), conv("c2", 16, 1)},
          {},
          {layer("tanh", "t2"), layer("max_pool2d", "p1", {{"kernel_size", Ints{2}}}),
           layer("flatten", "flat"), layer("linear", "f", {{"out_features", std::int64_t{5}}})}};
}

// Each operand is off by at most 2^-11 of itself, and about a dozen products follow each other. The
// layout option `nchw16c` forces NHWC, because `auto` would not choose it for such small layers.
TEST_F(HalfPlanOnCuda, AStepInTf32DoesWhatTheDynamicGraphDoes) {
  constexpr double kUnit = 0x1p-11;
  for (const Network& network : {resnet(), vgg()}) {
    for (const Data data : {Data::normal, Data::offset, Data::heavy_tails}) {
      const auto model = build(network, ComputePrecision::tf32, "nchw16c");
      const auto plan = planned(*model);
      ASSERT_NE(plan, nullptr);
      EXPECT_EQ(plan->why_not_recordable(), "") << plan->text();
      EXPECT_NE(plan->text().find("nhwc"), std::string::npos) << plan->text();
      const Result got = run(model, plan.get(), data);
      // The expected result uses an algorithm that also rounds its operands to tf32; `auto` might
      // choose one that does not.
      const Result want =
          run(build(network, ComputePrecision::tf32, "nchw", "implicit_gemm"), nullptr, data);
      EXPECT_NEAR(got.loss, want.loss, 12 * kUnit * want.loss) << plan->text();
      EXPECT_LT(relative_distance(got, want), 12 * kUnit) << plan->text();
      // If rounding makes a max-pool select another pixel, the results of both tf32 paths may
      // differ more from the f32 gradients.
      const Result exact = run(build(network, ComputePrecision::f32), nullptr, data);
      EXPECT_NEAR(got.loss, exact.loss, 12 * kUnit * exact.loss);
      EXPECT_LT(relative_distance(got, exact), relative_distance(want, exact) + 12 * kUnit);
      const Result again = run(model, plan.get(), data);
      for (std::size_t i = 0; i < got.gradients.size(); ++i) {
        EXPECT_TRUE(testing::same_bits(again.gradients[i], got.gradients[i]));
      }
    }
  }
}

TEST_F(HalfPlanOnCuda, Tf32ImagesAreF32NhwcBetweenTheEnds) {
  const auto model = build(resnet(), ComputePrecision::tf32, "nchw16c");
  const auto plan = planned(*model);
  // Three layout conversions: the images in the forward pass, and the input of the linear layer (21
  // channels of one pixel) in both passes.
  EXPECT_EQ(plan->conversions(), 3) << plan->text();
  int layers = 0;
  for (const RanKernel& kernel : plan->kernels()) {
    if (kernel.layer.find(".c") == std::string::npos) continue;
    EXPECT_EQ(kernel.layout, ActivationLayout::nhwc) << kernel.layer;
    ++layers;
  }
  EXPECT_EQ(layers, 11);
  EXPECT_NE(plan->text().find("copy to nhwc"), std::string::npos) << plan->text();
  EXPECT_EQ(plan->text().find("bf16"), std::string::npos);
}

TEST_F(HalfPlanOnCuda, AnInferenceInTf32FoldsBatchNormAndTakesTheResidual) {
  const auto model = build(resnet(), ComputePrecision::tf32, "nchw16c");
  model->eval();
  const auto plan = planned(*model, PlanMode::inference);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->conversions(), 2) << plan->text();
  const Tensor x = images(Data::normal);
  const NoGrad no_grad;
  const Tensor want = model->forward(Variable(x)).value().to(Device{});
  plan->prepare();
  const Tensor got = plan->infer(x).to(Device{});
  double largest = 0;
  for (std::int64_t i = 0; i < want.numel(); ++i) {
    largest = std::max(largest, std::abs(want.at(i)));
  }
  EXPECT_TRUE(testing::near(got, want, 12 * 0x1p-11 * largest, 0)) << plan->text();
}

int operands_made = 0;
decltype(pack_half_operands_kernel.get({})) pack_half_operands = nullptr;

// An inference in tf32 must compute the same numbers, up to rounding, whether it uses fp16 operands
// or reads f32.
TEST_F(HalfPlanOnCuda, Tf32InferenceReadsF32WhereThatIsFaster) {
  const Device cuda = testing::cuda();
  pack_half_operands = pack_half_operands_kernel.get(cuda);
  const auto reads_f32 = conv2d_reads_f32_kernel.get(cuda);
  pack_half_operands_kernel.add(cuda.type, [](const Tensor& x, void* block) {
    ++operands_made;
    pack_half_operands(x, block);
  });
  // Names the algorithm that supports fp16 operands and f32, because `auto` may choose another one
  // for such small images.
  const auto model = build(resnet(), ComputePrecision::tf32, "nchw16c", "implicit_gemm_tma,auto");
  model->eval();
  const Tensor x = images(Data::normal);
  const auto infer = [&] {
    const auto plan = planned(*model, PlanMode::inference);
    plan->prepare();
    operands_made = 0;
    return plan->infer(x).to(Device{});
  };
  const Tensor as_f32 = infer();
  EXPECT_EQ(operands_made, 0);
  conv2d_reads_f32_kernel.add(cuda.type, [](const Conv2dProblem&, Direction) { return false; });
  const Tensor as_half = infer();
  EXPECT_GT(operands_made, 0);
  pack_half_operands_kernel.add(cuda.type, pack_half_operands);
  conv2d_reads_f32_kernel.add(cuda.type, reads_f32);
  double largest = 0;
  for (std::int64_t i = 0; i < as_f32.numel(); ++i) {
    largest = std::max(largest, std::abs(as_f32.at(i)));
  }
  EXPECT_TRUE(testing::near(as_half, as_f32, 24 * 0x1p-11 * largest, 0));
}

// Layouts are chosen also where no product would read fp16 operands.
TEST_F(HalfPlanOnCuda, ATf32AlgorithmThatReadsF32NhwcGetsIt) {
  const auto model = build(vgg(), ComputePrecision::tf32, "auto", "cluster_gemm");
  const auto plan = planned(*model, PlanMode::inference);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("cluster_gemm nhwc"), std::string::npos) << plan->text();
}

TEST_F(HalfPlanOnCuda, PlanesAreKeptInTf32WhereTheConfigSaysSo) {
  const auto model = build(resnet(), ComputePrecision::tf32, "nchw");
  const auto plan = planned(*model);
  EXPECT_EQ(plan->conversions(), 0) << plan->text();
  EXPECT_EQ(plan->text().find("nhwc"), std::string::npos) << plan->text();
}

}  // namespace
}  // namespace convscope
