// SPDX-License-Identifier: Apache-2.0
// integer_execution_cuda_test.cpp: tests that inference graphs which compute on integer codes give
// the same results on `device cuda` as on the CPU.
#include <algorithm>
#include <cmath>

#include "experiments/trainer/evaluation/evaluator.h"
#include "framework/random.h"
#include "layers/conv2d/algorithm.h"
#include "layers/layer_types.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::normal;

using IntegerExecutionOnCuda = testing::CudaTest;

std::shared_ptr<Module> model(const char* name, const Shape& input, const Options& given = {},
                              const char* policy = "auto") {
  LayerContext context;
  context.seed = 3;
  context.conv_policy = [policy](const std::string&) { return Conv2dPolicy{.forward = policy}; };
  const ModelType& type = model_types().get(name);
  return type.build(complete_options(type.fields, given, name), input, 10, context);
}

// Calibrates on the CPU.
void calibrate(Module& network, const QuantConfig& config, const Tensor& x) {
  apply_quantization(network, config, {});
  network.train();
  const NoGrad no_grad;
  for (int i = 0; i < 3; ++i) network.forward(Variable(x));
  network.eval();
}

QuantConfig bits(std::int64_t w, std::int64_t a, std::int64_t residual_bits = 8) {
  QuantConfig config;
  config.w_bits = w;
  config.a_bits = a;
  config.per_channel = true;
  config.residual_bits = residual_bits;
  config.execute = QuantExecute::int8;
  return config;
}

std::unique_ptr<StepPlan> plan_of(Module& network, const Shape& input, PlanMode mode) {
  std::string why;
  auto plan = StepPlan::make(network, input, mode, &why);
  EXPECT_NE(plan, nullptr) << why;
  plan->prepare();
  return plan;
}

struct Result {
  Tensor logits;
  std::string text;
};

Result infer(Module& network, const Tensor& x, Device device) {
  network.to(device);
  const auto plan = plan_of(network, x.shape(), PlanMode::inference);
  EXPECT_EQ(plan->why_not_recordable(), "");
  return {plan->infer(x.to(device)).to(Device{}).clone(), plan->text()};
}

int count(const std::string& text, const std::string& word) {
  int out = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++out;
  return out;
}

constexpr const char* kOnIntegers = ":i8:i32:";  // part of each layer's types, "u8:i8:i32:f32"

// Expects that as many layers run on integers as on the CPU, and that no layer uses fake
// quantisation (rounding in f32).
void expect_like_cpu(Module& network, const Tensor& x, double bound) {
  const Result want = infer(network, x, {}), got = infer(network, x, cuda());
  EXPECT_EQ(count(got.text, kOnIntegers), count(want.text, kOnIntegers)) << got.text << want.text;
  EXPECT_GT(count(got.text, kOnIntegers), 0);
  EXPECT_EQ(got.text.find("fake"), std::string::npos) << got.text;
  double size = 0;
  for (std::int64_t i = 0; i < want.logits.numel(); ++i) {
    size = std::max(size, std::abs(want.logits.at(i)));
  }
  EXPECT_TRUE(testing::near(got.logits, want.logits, bound * size, 0)) << got.text;
}

constexpr double kRounding = 5 * 0x1p-24;  // of f32 y on the CPU (layers/conv2d/int8)

// By default one kernel runs the whole network. If the policy names an algorithm, each layer has a
// separate kernel.
TEST_F(IntegerExecutionOnCuda, LeNetGivesTheLogitsOfTheCpu) {
  for (const auto& [w, a] : {std::pair{8, 8}, {4, 4}, {2, 3}}) {
    for (const char* policy : {"auto", "int8_lesson,auto"}) {
      const Shape shape{3, 1, 28, 28};
      const auto network = model("lenet5", shape, {}, policy);
      const Tensor x = normal(shape, DType::f32, 9);
      calibrate(*network, bits(w, a), x);
      expect_like_cpu(*network, x, 2 * kRounding);
      const std::string text = infer(*network, x, cuda()).text;
      EXPECT_EQ(text.find("f32:i8"), std::string::npos) << text;  // images are rounded separately
      EXPECT_NE(text.find("u8:i8:i32:f32"), std::string::npos) << text;
      const bool is_one_kernel = policy == std::string_view("auto");
      EXPECT_EQ(count(text, "in one kernel"), is_one_kernel ? 1 : 0) << text;
      EXPECT_EQ(count(text, "max_pool2d on u8"), is_one_kernel ? 0 : 2) << text;
    }
  }
}

// The cases cover batches with more images than a GPU has blocks, several channels, and every
// kernel size.
TEST_F(IntegerExecutionOnCuda, SmallNetworksGiveTheLogitsOfTheCpu) {
  for (const auto& [shape, kernel] : {std::pair{Shape{9, 3, 32, 32}, 3},
                                      {Shape{2, 3, 32, 32}, 7},
                                      {Shape{2, 2, 29, 31}, 5},
                                      {Shape{300, 1, 16, 16}, 3}}) {
    SCOPED_TRACE(cat(shape, " kernel ", kernel));
    Options options;
    options.set("kernel_size", std::int64_t{kernel});
    const auto network = model("lenet5", shape, options);
    const Tensor x = normal(shape, DType::f32, 9);
    calibrate(*network, bits(8, 8), x);
    expect_like_cpu(*network, x, 2 * kRounding);
    EXPECT_EQ(count(infer(*network, x, cuda()).text, "in one kernel"), 1);
  }
}

// The network has batch norms with negative and positive scales, a convolution without a pool, and
// a linear layer f3 without a ReLU.
TEST_F(IntegerExecutionOnCuda, SmallNetworksWithBatchNormsGiveTheLogitsOfTheCpu) {
  for (const std::int64_t channels : {1, 3}) {
    const Shape shape{5, channels, 13, 11};
    LayerContext context;
    context.seed = 5;
    context.conv_policy = [](const std::string&) { return Conv2dPolicy{}; };
    const auto layer = [](const char* type, const char* name, const char* key = nullptr,
                          std::int64_t value = 0) {
      LayerSpec spec{.type = type, .name = name, .options = {}};
      if (key != nullptr) spec.options.set(key, value);
      if (type == std::string_view("conv2d")) spec.options.set("kernel_size", std::int64_t{3});
      return spec;
    };
    const auto network = build_layers(
        {layer("conv2d", "c1", "out_channels", 7), layer("batch_norm2d", "b1"), layer("relu", "r1"),
         layer("max_pool2d", "p1", "kernel_size", 2), layer("conv2d", "c2", "out_channels", 5),
         layer("batch_norm2d", "b2"), layer("relu", "r2"), layer("flatten", "flat"),
         layer("linear", "f3", "out_features", 33), layer("linear", "f4", "out_features", 10)},
        shape, context);
    for (const NamedModule& part : network->modules()) {
      if (part.module->kind() != "batch_norm2d") continue;
      Generator random(7, 2);
      for (const auto& parameter : part.module->parameters()) {
        const Tensor value = parameter.variable.value();
        for (std::int64_t i = 0; i < value.numel(); ++i) value.data<float>()[i] = random.normal();
      }
    }
    const Tensor x = normal(shape, DType::f32, 9);
    calibrate(*network, bits(8, 8), x);
    expect_like_cpu(*network, x, 2 * kRounding);
    const std::string text = infer(*network, x, cuda()).text;
    EXPECT_EQ(count(text, "in one kernel"), 1) << text;
  }
}

Options small_resnet(const char* stem) {
  Options out;
  out.set("stem", std::string(stem));
  out.set("widths", std::vector<std::int64_t>{8, 20, 16, 24});
  return out;
}

// Lesson algorithms compute y in double on both devices. So f32 values between layers have the same
// bits on both devices, unless a GPU fuses a product and a sum. (f32 values between layers occur
// with residual_bits 0, and in the mean before the last layer.) Other algorithms sum in another
// order, so a value near the border of two codes may round to the other code.
TEST_F(IntegerExecutionOnCuda, ResidualNetworksGiveTheLogitsOfTheCpu) {
  for (const std::int64_t residual_bits : {8, 0}) {
    for (const char* stem : {"cifar", "imagenet"}) {  // the second one has a max-pool
      for (const char* policy : {"int8_lesson,auto", "auto"}) {
        SCOPED_TRACE(cat(stem, " ", residual_bits, " ", policy));
        const Shape shape{2, 3, 16, 16};
        const auto network = model("resnet18", shape, small_resnet(stem), policy);
        const Tensor x = normal(shape, DType::f32, 9);
        calibrate(*network, bits(8, 8, residual_bits), x);
        const bool same_bits = policy != std::string_view("auto") && testing::is_emulated();
        expect_like_cpu(*network, x, same_bits ? 2 * kRounding : 2e-2);
      }
    }
  }
}

TEST_F(IntegerExecutionOnCuda, DepthwiseLayersGiveTheLogitsOfTheCpu) {
  for (const char* name : {"mobilenet_v2", "mobilenet_v1"}) {
    SCOPED_TRACE(name);
    const Shape shape{2, 3, 8, 8};
    Options small;
    small.set("stem", std::string("cifar"));
    small.set("width_multiplier", 0.1);
    const auto network = model(name, shape, small);
    const Tensor x = normal(shape, DType::f32, 9);
    calibrate(*network, bits(8, 8), x);
    expect_like_cpu(*network, x, 2e-2);
  }
}

// A recorded CUDA graph reads the step sizes from device memory. So a replay uses the current step
// sizes, and its results stay right when they change.
TEST_F(IntegerExecutionOnCuda, ARecordingStaysRightWhenStepsChange) {
  const DeviceBackend& backend = backend_of(cuda());
  if (backend.begin_recording == nullptr) GTEST_SKIP() << "this device records nothing";
  const Shape shape{2, 1, 28, 28};
  const auto network = model("lenet5", shape);
  const Tensor x = normal(shape, DType::f32, 9);
  calibrate(*network, bits(8, 8), x);
  network->to(cuda());
  const auto plan = plan_of(*network, shape, PlanMode::inference);
  const Tensor images = x.to(cuda()), result = plan->infer(images);
  backend.begin_recording(0);
  plan->infer(images);
  void* const recording = backend.end_recording(0);
  const Tensor before = result.to(Device{}).clone();
  for (const QuantizedTensor& one : quantized_tensors(*network)) {
    const Tensor steps = one.quantizer->steps();
    for (std::int64_t i = 0; i < steps.numel(); ++i) steps.data<float>()[i] *= 1.25f;
    one.quantizer->set_steps(steps);
  }
  ASSERT_TRUE(plan->is_current());
  plan->prepare();
  backend.replay(0, recording);
  const Tensor after = result.to(Device{}).clone();
  backend.free_recording(0, recording);
  EXPECT_FALSE(testing::near(after, before, 0, 1e-3));
  EXPECT_TRUE(testing::same_bits(after, infer(*network, x, cuda()).logits));
}

// In an f32 graph the last layer computes the loss, too. In an integer graph, the loss becomes a
// separate operation again.
TEST_F(IntegerExecutionOnCuda, EvaluationsComputeTheLossBehindTheLastLayer) {
  const Shape shape{4, 1, 28, 28};
  const auto network = model("lenet5", shape);
  const Tensor x = normal(shape, DType::f32, 9);
  const Tensor labels = Tensor::from<std::int32_t>(std::vector<std::int32_t>{1, 4, 0, 9}, {4});
  calibrate(*network, bits(8, 8), x);
  double loss[2];
  for (const Device device : {Device{}, cuda()}) {
    network->to(device);
    const auto plan = plan_of(*network, shape, PlanMode::evaluation);
    EXPECT_EQ(count(plan->text(), kOnIntegers), 5) << plan->text();
    EXPECT_EQ(count(plan->text(), "softmax_cross_entropy"), 1) << plan->text();
    loss[device.type == DeviceType::cuda ? 1 : 0] = plan->forward(x.to(device), labels.to(device));
  }
  EXPECT_NEAR(loss[1], loss[0], 1e-5);
}

Dataset noise(std::int64_t count) {
  Dataset data;
  data.images = Tensor::empty({count, 1, 28, 28}, DType::u8);
  data.labels = Tensor::empty({count}, DType::i32);
  data.classes = 10;
  data.mean = {0.5};
  data.std = {0.3};
  Generator random(3, 1);
  for (std::int64_t i = 0; i < data.images.numel(); ++i) {
    data.images.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
  }
  for (std::int64_t n = 0; n < count; ++n) {
    data.labels.data<std::int32_t>()[n] = static_cast<std::int32_t>(random.below(10));
  }
  return data;
}

// Evaluates five batches, four of 4 images and one of 2, in each of two rounds. The evaluator
// records each batch size as a CUDA graph. The step sizes change between the rounds.
TEST_F(IntegerExecutionOnCuda, RecordedEvaluationsAreThoseOfTheCpu) {
  const auto network = model("lenet5", {4, 1, 28, 28});
  calibrate(*network, bits(8, 8), normal({4, 1, 28, 28}, DType::f32, 9));
  Loader loader(noise(18), {.batch_size = 4, .shuffle = false, .prefetch = false});
  network->to(cuda());
  Evaluator evaluator(*network, loader, cuda(), /*plans=*/true);
  for (int round = 0; round < 2; ++round) {
    const Evaluation got = evaluator.run();
    EXPECT_EQ(evaluator.why_not_recorded(), "");
    const auto on_cpu = model("lenet5", {4, 1, 28, 28});
    calibrate(*on_cpu, bits(8, 8), normal({4, 1, 28, 28}, DType::f32, 9));
    const auto steps = quantized_tensors(*on_cpu);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      steps[i].quantizer->set_steps(quantized_tensors(*network)[i].quantizer->steps());
    }
    const Evaluation want = Evaluator(*on_cpu, loader, Device{}, /*plans=*/true).run();
    EXPECT_EQ(got.images, 18);
    EXPECT_NEAR(got.loss, want.loss, 1e-5);
    EXPECT_EQ(got.accuracy, want.accuracy);
    for (const QuantizedTensor& one : quantized_tensors(*network)) {
      const Tensor longer = one.quantizer->steps();
      for (std::int64_t i = 0; i < longer.numel(); ++i) longer.data<float>()[i] *= 1.5f;
      one.quantizer->set_steps(longer);
    }
  }
}

TEST_F(IntegerExecutionOnCuda, AAlgorithmThatThePolicyNamesIsTaken) {
  const Shape shape{2, 1, 28, 28};
  const auto network = model("lenet5", shape, {}, "int8_lesson,auto");
  const Tensor x = normal(shape, DType::f32, 9);
  calibrate(*network, bits(8, 8), x);
  for (const Device device : {Device{}, cuda()}) {
    const Result result = infer(*network, x, device);
    EXPECT_EQ(count(result.text, "conv2d int8_lesson"), 2) << result.text;
  }
}

TEST_F(IntegerExecutionOnCuda, AnotherNameKeepsALayerAsItIs) {
  const Shape shape{2, 1, 28, 28};
  const auto network = model("lenet5", shape, {}, "im2col_gemm");
  const Tensor x = normal(shape, DType::f32, 9);
  calibrate(*network, bits(8, 8), x);
  const Result want = infer(*network, x, {}), got = infer(*network, x, cuda());
  EXPECT_EQ(count(got.text, "conv2d im2col_gemm"), 2) << got.text;
  EXPECT_EQ(count(got.text, "linear int8_"), 3) << got.text;
  EXPECT_TRUE(testing::near(got.logits, want.logits, 2e-2, 2e-2)) << got.text;
}

}  // namespace
}  // namespace convscope
