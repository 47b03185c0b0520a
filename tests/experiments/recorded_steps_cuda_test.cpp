// SPDX-License-Identifier: Apache-2.0
// recorded_steps_cuda_test.cpp: tests recorded training steps, which the device replays as a CUDA
// graph. They must equal the steps that the host launches one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "experiments/trainer/evaluation/evaluator.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/recorded_steps.h"
#include "experiments/trainer/train_step.h"
#include "framework/random.h"
#include "layers/layer_types.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using testing::cuda;
using RecordedStepsOnCuda = testing::CudaTest;

constexpr std::int64_t kImages = 46, kBatch = 8;  // 5 full batches and one of 6
constexpr int kClasses = 5;

// Makes images of noise with one bright spot; the position of the spot is the class.
Dataset spots(std::int64_t count) {
  Dataset data;
  data.name = "spots";
  data.images = Tensor::empty({count, 1, 12, 12}, DType::u8);
  data.labels = Tensor::empty({count}, DType::i32);
  data.classes = kClasses;
  data.mean = {0.2};
  data.std = {0.35};
  Generator random(3, 1);
  for (std::int64_t n = 0; n < count; ++n) {
    const auto label = static_cast<std::int32_t>(random.below(kClasses));
    data.labels.data<std::int32_t>()[n] = label;
    for (std::int64_t i = 0; i < 144; ++i) {
      const bool bright = i / 12 / 3 == label % 4 && i % 12 < 6 + label;
      data.images.data<std::uint8_t>()[n * 144 + i] =
          static_cast<std::uint8_t>(random.below(60) + (bright ? 150u : 0u));
    }
  }
  return data;
}

LayerSpec layer(const char* type, const char* name,
                std::initializer_list<std::pair<const char*, OptionValue>> pairs = {}) {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : pairs) out.options.set(key, value);
  return out;
}
using Ints = std::vector<std::int64_t>;

struct Network {
  std::shared_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
};

Network network(Device device, const std::vector<LayerSpec>& specs, const char* optimizer = "sgd",
                ComputePrecision precision = ComputePrecision::f32) {
  LayerContext context;
  context.precision = precision;
  context.seed = 5;
  context.device = device;
  Network out;
  out.model = build_layers(specs, {kBatch, 1, 12, 12}, context);
  ParameterGroup group;
  for (const NamedParameter& parameter : out.model->parameters()) {
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  const OptimizerType& type = optimizer_types().get(optimizer);
  Options options(type.fields);
  if (std::string(optimizer) == "sgd") options.set("momentum", 0.9);
  out.optimizer = type.build({group}, options);
  return out;
}

// A small LeNet.
std::vector<LayerSpec> lenet() {
  return {layer("conv2d", "c1", {{"out_channels", std::int64_t{3}}, {"kernel_size", Ints{3}}}),
          layer("relu", "r1"),
          layer("max_pool2d", "p1", {{"kernel_size", Ints{2}}}),
          layer("conv2d", "c2", {{"out_channels", std::int64_t{4}}, {"kernel_size", Ints{3}}}),
          layer("relu", "r2"),
          layer("flatten", "flat"),
          layer("linear", "f3", {{"out_features", std::int64_t{10}}}),
          layer("relu", "r3"),
          layer("linear", "f4", {{"out_features", std::int64_t{kClasses}}})};
}

std::vector<LayerSpec> with_batch_norm_and_dropout() {
  return {layer("conv2d", "c1", {{"out_channels", std::int64_t{3}}, {"kernel_size", Ints{3}}}),
          layer("batch_norm2d", "b1"),
          layer("relu", "r1"),
          layer("avg_pool2d", "p1", {{"kernel_size", Ints{2}}}),
          layer("dropout", "d1", {{"p", 0.25}}),
          layer("flatten", "flat"),
          layer("linear", "f4", {{"out_features", std::int64_t{kClasses}}})};
}

std::vector<LayerSpec> with_norms_and_stochastic_depth() {
  const std::pair<const char*, OptionValue> size{"kernel_size", Ints{3}}, pad{"padding", Ints{1}};
  return {layer("conv2d", "c1", {{"out_channels", std::int64_t{8}}, size}),
          layer("layer_norm", "n1"),
          layer("conv2d", "c2", {{"out_channels", std::int64_t{8}}, size, pad}),
          layer("gelu", "g1"),
          layer("layer_scale", "s1", {{"init", 1.0}}),
          layer("stochastic_depth", "d1", {{"probability", 0.25}}),
          layer("upsample", "u1", {{"scale", 2.0}}),
          layer("group_norm", "n2", {{"groups", std::int64_t{2}}}),
          layer("adaptive_max_pool2d", "p1", {{"output_size", Ints{3}}}),
          layer("flatten", "flat"),
          layer("linear", "f4", {{"out_features", std::int64_t{kClasses}}})};
}

std::vector<LayerSpec> deformable() {
  const std::pair<const char*, OptionValue> size{"kernel_size", Ints{3}}, pad{"padding", Ints{1}};
  return {layer("conv2d", "c1", {{"out_channels", std::int64_t{4}}, size}),
          layer("relu", "r1"),
          layer("deform_conv2d", "d2", {{"out_channels", std::int64_t{4}}, size, pad}),
          layer("relu", "r2"),
          layer("max_pool2d", "p2", {{"kernel_size", Ints{2}}}),
          layer("flatten", "flat"),
          layer("linear", "f3", {{"out_features", std::int64_t{kClasses}}})};
}

Loader loader_of(std::int64_t count = kImages) {
  return Loader(spots(count), {.batch_size = kBatch, .seed = 9, .prefetch = false});
}

double rate(std::int64_t step) { return 0.05 / static_cast<double>(1 + step); }

// Trains with recorded steps from `step` to the end of `epochs` epochs. One launch of the recording
// replays at most `most` steps.
std::vector<StepOutcome> train_recorded(const Network& net, std::int64_t step, std::int64_t epochs,
                                        int most, double clip_norm = 0, LossScale* scale = nullptr,
                                        int chunks = 1) {
  Loader loader = loader_of();
  const auto exchange = exchange_of(*net.model, cuda(), {.chunks = chunks});
  std::string why;
  const auto steps = RecordedSteps::make(*net.model, net.optimizer.get(), clip_norm, loader, cuda(),
                                         &why, {}, exchange.get(), scale);
  EXPECT_NE(steps, nullptr) << why;
  std::vector<StepOutcome> out;
  if (!steps) return out;
  const std::int64_t batches = loader.batches_per_epoch();
  while (step < epochs * batches) {
    steps->start_epoch(step / batches, step % batches, step);
    while (true) {
      while (steps->queue(rate, most) > 0) {
      }
      if (steps->in_flight() == 0) break;
      const RecordedSteps::Launch launch = steps->collect();
      EXPECT_EQ(launch.first_step, step);
      step += launch.steps;
      out.insert(out.end(), launch.outcomes, launch.outcomes + launch.steps);
    }
  }
  EXPECT_TRUE(steps->is_current());
  return out;
}

// Trains like train_recorded(), but takes batches from the loader and runs one step at a time.
// Stops before step `until`.
std::vector<StepResult> train_stepwise(const Network& net, Device device, std::int64_t until,
                                       bool plans, double clip_norm = 0, LossScale* scale = nullptr,
                                       int chunks = 1) {
  Loader loader = loader_of();
  TrainStep train_step(*net.model, *net.optimizer, clip_norm, device, 0, plans);
  const auto exchange = exchange_of(*net.model, device, {.chunks = chunks});
  if (exchange) train_step.share(exchange.get(), {.chunks = chunks}, nullptr);
  if (scale != nullptr) train_step.scale_loss(scale);
  std::vector<StepResult> out;
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; step < until; ++epoch) {
    loader.start_epoch(epoch);
    Batch batch;
    while (step < until && loader.next(batch)) {
      net.model->set_step(step);
      out.push_back(train_step.run(batch, rate(step)));
      ++step;
    }
  }
  return out;
}

std::vector<float> weights_of(const Network& net) {
  std::vector<float> out;
  for (const NamedParameter& parameter : net.model->parameters()) {
    const auto values = testing::values_of<float>(parameter.variable.value());
    out.insert(out.end(), values.begin(), values.end());
  }
  for (const NamedTensor& buffer : net.model->buffers()) {
    const auto values = testing::values_of<float>(buffer.tensor);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

void expect_same_weights(const Network& a, const Network& b) {
  const std::vector<float> x = weights_of(a);
  const std::vector<float> y = weights_of(b);
  ASSERT_EQ(x.size(), y.size());
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0);
}

TEST_F(RecordedStepsOnCuda, follow_the_dynamic_graph_on_the_cpu) {
  const Network recorded = network(cuda(), lenet());
  const Network dynamic = network(Device{}, lenet());
  const auto got = train_recorded(recorded, 0, 2, RecordedSteps::kMaxSteps);
  const auto want = train_stepwise(dynamic, Device{}, 12, /*plans=*/false);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    // Recorded steps sum in another order than the CPU, so each step differs by about 1e-7. Over 12
    // steps at a rate of at most 0.05, the difference hardly grows.
    EXPECT_NEAR(static_cast<double>(got[i].loss), want[i].loss, 2e-5) << "step " << i;
    EXPECT_NEAR(got[i].correct, static_cast<double>(want[i].correct), 1) << "step " << i;
  }
  const std::vector<float> a = weights_of(recorded);
  const std::vector<float> b = weights_of(dynamic);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-5);
}

// The convolution kernels named here let the next kernel start early, before they themselves have
// waited for the previous kernel. A step runs them between the two kernels of the linear layers,
// and between the update and the first kernel of a linear layer.
TEST_F(RecordedStepsOnCuda, follow_the_cpu_where_kernels_let_the_next_one_start_at_once) {
  for (const char* algorithm : {"implicit_gemm", "implicit_gemm_tma_fp16x3", "direct"}) {
    SCOPED_TRACE(algorithm);
    const auto specs = [&](const char* name) -> std::vector<LayerSpec> {
      return {layer("conv2d", "c1",
                    {{"out_channels", std::int64_t{8}},
                     {"kernel_size", Ints{3}},
                     {"bias", false},
                     {"algorithm", std::string(name)}}),
              layer("flatten", "flat"), layer("linear", "f2", {{"out_features", std::int64_t{12}}}),
              layer("relu", "r2"),
              layer("linear", "f3", {{"out_features", std::int64_t{kClasses}}})};
    };
    const Network recorded = network(cuda(), specs(algorithm));
    const Network dynamic = network(Device{}, specs("auto"));
    const auto got = train_recorded(recorded, 0, 2, RecordedSteps::kMaxSteps);
    const auto want = train_stepwise(dynamic, Device{}, 12, /*plans=*/false);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(got[i].loss), want[i].loss, 2e-5) << "step " << i;
    }
    const std::vector<float> a = weights_of(recorded);
    const std::vector<float> b = weights_of(dynamic);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-5);
  }
}

TEST_F(RecordedStepsOnCuda, give_the_bits_of_planned_steps_and_of_single_launches) {
  const Network many = network(cuda(), lenet());
  const Network single = network(cuda(), lenet());
  const Network planned = network(cuda(), lenet());
  const auto a = train_recorded(many, 0, 2, RecordedSteps::kMaxSteps);
  const auto b = train_recorded(single, 0, 2, 1);
  const auto c = train_stepwise(planned, cuda(), 12, /*plans=*/true);
  ASSERT_EQ(a.size(), c.size());
  for (std::size_t i = 0; i < c.size(); ++i) {
    EXPECT_EQ(static_cast<double>(a[i].loss), c[i].loss) << "step " << i;
    EXPECT_EQ(a[i].correct, c[i].correct) << "step " << i;
    EXPECT_EQ(a[i].loss, b[i].loss) << "step " << i;
  }
  expect_same_weights(many, single);
  expect_same_weights(many, planned);
}

TEST_F(RecordedStepsOnCuda, give_the_same_bits_twice) {
  const Network one = network(cuda(), lenet(), "adam");
  const Network two = network(cuda(), lenet(), "adam");
  train_recorded(one, 0, 2, RecordedSteps::kMaxSteps);
  train_recorded(two, 0, 2, RecordedSteps::kMaxSteps);
  expect_same_weights(one, two);
}

TEST_F(RecordedStepsOnCuda, draw_the_dropout_and_the_statistics_of_the_step) {
  for (const auto& specs : {with_batch_norm_and_dropout(), with_norms_and_stochastic_depth()}) {
    const Network recorded = network(cuda(), specs, "adam");
    const Network planned = network(cuda(), specs, "adam");
    train_recorded(recorded, 0, 2, RecordedSteps::kMaxSteps);
    train_stepwise(planned, cuda(), 12, /*plans=*/true);
    expect_same_weights(recorded, planned);
  }
}

// A batch has 8 images, or 6 at the end of an epoch, so the micro-batches have different sizes.
TEST_F(RecordedStepsOnCuda, accumulate_like_planned_steps) {
  for (const int chunks : {2, 3, 4}) {
    SCOPED_TRACE(chunks);
    const Network recorded = network(cuda(), with_batch_norm_and_dropout(), "adam");
    const Network planned = network(cuda(), with_batch_norm_and_dropout(), "adam");
    const auto got = train_recorded(recorded, 0, 2, RecordedSteps::kMaxSteps, 0.5, nullptr, chunks);
    const auto want = train_stepwise(planned, cuda(), 12, /*plans=*/true, 0.5, nullptr, chunks);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      // The device adds the losses of micro-batches in f32.
      EXPECT_NEAR(static_cast<double>(got[i].loss), want[i].loss, 1e-6 * want[i].loss) << i;
      EXPECT_EQ(got[i].correct, want[i].correct) << i;
    }
    expect_same_weights(recorded, planned);
  }
}

TEST_F(RecordedStepsOnCuda, leave_class_weights_of_micro_batches_to_the_host) {
  const Network net = network(cuda(), lenet());
  const Loader loader = loader_of();
  Options options;
  options.set("class_weights", std::vector<double>(kClasses, 2));
  for (const int chunks : {1, 2}) {
    const auto exchange = exchange_of(*net.model, cuda(), {.chunks = chunks});
    std::string why;
    const auto steps =
        RecordedSteps::make(*net.model, net.optimizer.get(), 0, loader, cuda(), &why, {},
                            exchange.get(), nullptr, Loss("cross_entropy", options));
    EXPECT_EQ(steps != nullptr, chunks == 1) << why;
    EXPECT_EQ(why.find("the host counts the labels") != std::string::npos, chunks == 2) << why;
  }
}

TEST_F(RecordedStepsOnCuda, accumulate_with_a_loss_scale) {
  const Network recorded = network(cuda(), lenet());
  const Network planned = network(cuda(), lenet());
  LossScale scales[2];
  train_recorded(recorded, 0, 2, RecordedSteps::kMaxSteps, 0, &scales[0], 2);
  train_stepwise(planned, cuda(), 12, /*plans=*/true, 0, &scales[1], 2);
  EXPECT_EQ(scales[0].scale(), scales[1].scale());
  expect_same_weights(recorded, planned);
}

// Tests fp16/bf16 networks: one with NHWC images and a dropout that runs on f32 NCHW images, and
// one with a chain of convolutions.
TEST_F(RecordedStepsOnCuda, give_the_bits_of_planned_steps_in_half_precision) {
  for (const auto& specs :
       {with_batch_norm_and_dropout(), lenet(), with_norms_and_stochastic_depth()}) {
    const Network recorded = network(cuda(), specs, "sgd", ComputePrecision::bf16);
    const Network planned = network(cuda(), specs, "sgd", ComputePrecision::bf16);
    const auto a = train_recorded(recorded, 0, 2, RecordedSteps::kMaxSteps);
    const auto b = train_stepwise(planned, cuda(), 12, /*plans=*/true);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < b.size(); ++i) {
      EXPECT_EQ(static_cast<double>(a[i].loss), b[i].loss) << "step " << i;
    }
    expect_same_weights(recorded, planned);
  }
}

TEST_F(RecordedStepsOnCuda, move_the_samples_of_planned_steps) {
  const Network recorded = network(cuda(), deformable(), "adam");
  const Network planned = network(cuda(), deformable(), "adam");
  const Network dynamic = network(Device{}, deformable(), "adam");
  const auto got = train_recorded(recorded, 0, 2, RecordedSteps::kMaxSteps);
  train_stepwise(planned, cuda(), 12, /*plans=*/true);
  expect_same_weights(recorded, planned);
  const auto want = train_stepwise(dynamic, Device{}, 12, /*plans=*/false);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(got[i].loss), want[i].loss, 1e-3) << "step " << i;
  }
}

TEST_F(RecordedStepsOnCuda, clip_gradients_like_planned_steps) {
  const Network recorded = network(cuda(), lenet());
  const Network planned = network(cuda(), lenet());
  train_recorded(recorded, 0, 1, RecordedSteps::kMaxSteps, 0.3);
  train_stepwise(planned, cuda(), 6, /*plans=*/true, 0.3);
  const std::vector<float> a = weights_of(recorded);
  const std::vector<float> b = weights_of(planned);
  // A single step applies the factor of gradient clipping in double; a recorded step applies it
  // in f32.
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6);
}

bool same_state(const LossScale& a, const LossScale& b) {
  return a.scale() == b.scale() && a.state().good_steps == b.state().good_steps &&
         a.state().skipped == b.state().skipped;
}

// The loss scale starts beyond the range of f32. The gradients of the first steps overflow; the
// trainer skips each such step and halves the scale.
TEST_F(RecordedStepsOnCuda, scale_the_loss_as_the_host_does) {
  for (const char* optimizer : {"sgd", "adam", "lion"}) {
    SCOPED_TRACE(optimizer);
    LossScale scales[3];
    for (LossScale& scale : scales) scale.restore({.scale = 0x1p130, .good_steps = 7});
    const Network many = network(cuda(), lenet(), optimizer);
    const Network single = network(cuda(), lenet(), optimizer);
    const Network planned = network(cuda(), lenet(), optimizer);
    const auto a = train_recorded(many, 0, 2, RecordedSteps::kMaxSteps, 0, &scales[0]);
    train_recorded(single, 0, 2, 1, 0, &scales[1]);
    const auto c = train_stepwise(planned, cuda(), 12, /*plans=*/true, 0, &scales[2]);
    ASSERT_EQ(a.size(), c.size());
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < c.size(); ++i) {
      EXPECT_TRUE(c[i].planned);
      EXPECT_EQ(static_cast<double>(a[i].loss), c[i].loss) << "step " << i;
      EXPECT_EQ(a[i].scale.skipped - skipped, c[i].skipped ? 1 : 0) << "step " << i;
      skipped = a[i].scale.skipped;
    }
    EXPECT_GE(skipped, 3);  // 2^130, 2^129 and 2^128 are infinite in f32
    EXPECT_LT(skipped, 12);
    EXPECT_TRUE(same_state(scales[0], scales[1]));
    EXPECT_TRUE(same_state(scales[0], scales[2]));
    EXPECT_EQ(scales[0].scale(), std::ldexp(1.0, static_cast<int>(130 - skipped)));
    expect_same_weights(many, single);
    expect_same_weights(many, planned);
  }
}

// The loss scale is a power of two, so scaling changes no bit of a mantissa. Clipping uses unscaled
// gradients.
TEST_F(RecordedStepsOnCuda, give_the_same_bits_with_any_loss_scale_that_fits) {
  const Network plain = network(cuda(), lenet());
  const Network scaled = network(cuda(), lenet());
  train_recorded(plain, 0, 2, RecordedSteps::kMaxSteps, 0.3);
  LossScale scale;
  scale.restore({.scale = 1024, .good_steps = LossScale::kGoodSteps - 5});
  train_recorded(scaled, 0, 2, RecordedSteps::kMaxSteps, 0.3, &scale);
  EXPECT_EQ(scale.scale(), 2048);
  EXPECT_EQ(scale.state().good_steps, 7);
  EXPECT_EQ(scale.state().skipped, 0);
  expect_same_weights(plain, scaled);
}

TEST_F(RecordedStepsOnCuda, go_on_with_the_loss_scale_of_the_step_before) {
  LossScale one, two;
  for (LossScale* scale : {&one, &two}) scale->restore({.scale = 0x1p129});
  const Network whole = network(cuda(), lenet(), "adam");
  const Network resumed = network(cuda(), lenet(), "adam");
  train_recorded(whole, 0, 2, RecordedSteps::kMaxSteps, 0, &one);
  train_stepwise(resumed, cuda(), 2, /*plans=*/true, 0, &two);
  train_recorded(resumed, 2, 2, RecordedSteps::kMaxSteps, 0, &two);
  EXPECT_TRUE(same_state(one, two));
  expect_same_weights(whole, resumed);
}

TEST_F(RecordedStepsOnCuda, go_on_in_the_middle_of_an_epoch) {
  const Network whole = network(cuda(), lenet());
  const Network resumed = network(cuda(), lenet());
  train_recorded(whole, 0, 2, RecordedSteps::kMaxSteps);
  train_stepwise(resumed, cuda(), 8, /*plans=*/true);
  train_recorded(resumed, 8, 2, RecordedSteps::kMaxSteps);
  expect_same_weights(whole, resumed);
}

TEST_F(RecordedStepsOnCuda, keep_the_weights_after_a_loss_that_is_not_finite) {
  const Network net = network(cuda(), lenet());
  const Tensor first = net.model->parameters().front().variable.value();
  const Tensor broken = first.to(Device{}).clone();
  broken.data<float>()[0] = std::numeric_limits<float>::infinity();
  first.copy_from(broken);
  const std::vector<float> before = weights_of(net);
  const auto outcomes = train_recorded(net, 0, 1, RecordedSteps::kMaxSteps);
  EXPECT_FALSE(std::isfinite(outcomes.front().loss));
  const std::vector<float> after = weights_of(net);
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
}

TEST_F(RecordedStepsOnCuda, evaluate_like_the_cpu) {
  for (const auto& specs : {lenet(), with_batch_norm_and_dropout()}) {
    const Network here = network(cuda(), specs);
    const Network there = network(Device{}, specs);
    train_stepwise(here, cuda(), 5, /*plans=*/true);
    train_stepwise(there, Device{}, 5, /*plans=*/true);
    Loader loader = loader_of();
    Evaluator evaluator(*here.model, loader, cuda(), /*plans=*/true);
    const Evaluation want = Evaluator(*there.model, loader, Device{}, /*plans=*/true).run();
    for (int round = 0; round < 2; ++round) {
      const Evaluation got = evaluator.run();
      EXPECT_EQ(evaluator.why_not_recorded(), "");
      EXPECT_EQ(got.images, kImages);
      EXPECT_NEAR(got.loss, want.loss, 2e-5);
      EXPECT_NEAR(got.accuracy, want.accuracy, 100.0 / kImages + 1e-9);
    }
  }
}

// Times launches of full batches, with the kernels of the evaluation.
TEST_F(RecordedStepsOnCuda, time_a_batch_of_an_inference) {
  const Network ours = network(cuda(), lenet());
  Loader loader(spots(kImages), {.batch_size = kBatch});
  Evaluator evaluator(*ours.model, loader, cuda(), /*plans=*/true);
  const Evaluation before = evaluator.run();
  ASSERT_EQ(evaluator.why_not_recorded(), "");
  const auto time = evaluator.time();
  ASSERT_TRUE(time.has_value());
  EXPECT_GT(time->batch_s, 0);
  EXPECT_LT(time->batch_s, 10);
  EXPECT_FALSE(time->kernels.all().empty());
  EXPECT_EQ(time->kernels.execution, "recorded");
  const Evaluation after = evaluator.run();
  EXPECT_EQ(after.loss, before.loss);
  // Without recordings, single batches are timed.
  Evaluator dynamic(*ours.model, loader, cuda(), /*plans=*/false);
  const auto single = dynamic.time();
  ASSERT_TRUE(single.has_value());
  EXPECT_GT(single->batch_s, 0);
  EXPECT_EQ(single->kernels.execution, "dynamic");
}

TEST_F(RecordedStepsOnCuda, say_why_they_are_not_recorded) {
  const Network net = network(cuda(), lenet());
  const Loader augmented(spots(20), {.batch_size = kBatch, .prefetch = false, .mirror = true});
  std::string why;
  EXPECT_EQ(RecordedSteps::make(*net.model, net.optimizer.get(), 0, augmented, cuda(), &why),
            nullptr);
  EXPECT_EQ(why, "the images are augmented on the host");
  const Network on_cpu = network(Device{}, lenet());
  const Loader loader = loader_of();
  EXPECT_EQ(RecordedSteps::make(*on_cpu.model, on_cpu.optimizer.get(), 0, loader, Device{}, &why),
            nullptr);
  EXPECT_EQ(why, "cpu records no kernels");
}

// Tests the gather kernel by itself: its batches have the same bits as the loader's batches. Some
// images have a multiple of four pixels, the others do not.
TEST_F(RecordedStepsOnCuda, see_the_batches_of_the_loader) {
  for (const std::int64_t side : {5, 6, 40}) {
    Dataset data;
    data.images = Tensor::empty({11, 3, side, side}, DType::u8);
    data.labels = Tensor::empty({11}, DType::i32);
    data.classes = 11;
    data.mean = {0.1, 0.2, 0.3};
    data.std = {0.5, 0.25, 0.3};
    Generator random(1, 2);
    for (std::int64_t i = 0; i < data.images.numel(); ++i) {
      data.images.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
    }
    for (std::int32_t i = 0; i < 11; ++i) data.labels.data<std::int32_t>()[i] = i;
    Loader loader(data, {.batch_size = 4, .seed = 2, .prefetch = false});
    std::string why;
    const auto on_device = DeviceData::make(loader, cuda(), &why);
    ASSERT_NE(on_device, nullptr) << why;
    loader.start_epoch(3);
    on_device->start_epoch(3);
    const Tensor start = Tensor::zeros({sizeof(LaunchStart)}, DType::u8, cuda());
    Batch batch;
    for (std::int64_t offset = 0; loader.next(batch); offset += 4) {
      const Tensor x = Tensor::zeros(batch.x.shape(), DType::f32, cuda());
      const Tensor labels = Tensor::zeros(batch.labels.shape(), DType::i32, cuda());
      next_batch_kernel.get(cuda())({.start = static_cast<const LaunchStart*>(start.raw_data()),
                                     .offset = offset,
                                     .batch = x.dim(0),
                                     .channels = 3,
                                     .plane = side * side,
                                     .images = on_device->images().data<std::uint8_t>(),
                                     .image_labels = on_device->labels().data<std::int32_t>(),
                                     .order = on_device->order().data<std::int32_t>(),
                                     .levels = on_device->levels().data<float>(),
                                     .x = x.data<float>(),
                                     .labels = labels.data<std::int32_t>()});
      const auto got = testing::values_of<float>(x);
      EXPECT_EQ(std::memcmp(got.data(), batch.x.raw_data(), got.size() * sizeof(float)), 0);
      EXPECT_EQ(testing::values_of<std::int32_t>(labels),
                testing::values_of<std::int32_t>(batch.labels));
    }
  }
}

}  // namespace
}  // namespace convscope
