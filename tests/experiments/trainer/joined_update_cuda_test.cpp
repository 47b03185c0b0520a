// SPDX-License-Identifier: Apache-2.0
// joined_update_cuda_test.cpp: tests recorded steps (CUDA graphs) of a LeNet in which the first
// kernel gathers the images and the last kernel updates the weights. The bits must be those of
// steps with batches from the host and a separate update kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "experiments/trainer/recorded_steps.h"
#include "experiments/trainer/train_step.h"
#include "framework/random.h"
#include "layers/layer_types.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using testing::cuda;
using JoinedUpdateOnCuda = testing::CudaTest;
using Ints = std::vector<std::int64_t>;

struct Case {
  std::int64_t images = 46, batch = 8;  // 5 full batches and one of 6
  std::int64_t channels = 1, side = 12;
  bool pools_twice = false;      // then only the last linear layers read rounded values
  bool changes_weights = false;  // after each update
  const char* optimizer = "sgd";
  ComputePrecision precision = ComputePrecision::f32;
  double clip_norm = 0;
  float level = 0;   // value of all weights of the first layer; 0: random
  double scale = 0;  // initial loss scale; 0: none
};

Dataset noise(const Case& c) {
  Dataset data;
  data.name = "noise";
  data.classes = 5;
  data.images = Tensor::empty({c.images, c.channels, c.side, c.side}, DType::u8);
  data.labels = Tensor::empty({c.images}, DType::i32);
  data.mean.assign(static_cast<std::size_t>(c.channels), 0.4);
  data.std.assign(static_cast<std::size_t>(c.channels), 0.3);
  data.mean[0] = 0.2;
  Generator random(3, 1);
  for (std::int64_t i = 0; i < data.images.numel(); ++i) {
    data.images.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
  }
  for (std::int64_t n = 0; n < c.images; ++n) {
    data.labels.data<std::int32_t>()[n] = static_cast<std::int32_t>(random.below(5));
  }
  return data;
}

struct Network {
  std::shared_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
};

Network network(const Case& c) {
  const auto spec = [](const char* type, const char* name, const char* key = nullptr,
                       const OptionValue& value = {}) {
    LayerSpec out{.type = type, .name = name, .options = {}};
    if (key != nullptr) out.options.set(key, value);
    if (std::string(type) == "conv2d") out.options.set("kernel_size", Ints{3});
    return out;
  };
  const auto count = [](std::int64_t n) { return OptionValue{n}; };
  LayerContext context;
  context.seed = 5;
  context.device = cuda();
  context.precision = c.precision;
  Network out;
  std::vector<LayerSpec> specs{spec("conv2d", "c1", "out_channels", count(3)), spec("relu", "r1"),
                               spec("max_pool2d", "p1", "kernel_size", Ints{2}),
                               spec("conv2d", "c2", "out_channels", count(4)), spec("relu", "r2")};
  if (c.pools_twice) specs.push_back(spec("max_pool2d", "p2", "kernel_size", Ints{2}));
  for (const LayerSpec& each :
       {spec("flatten", "flat"), spec("linear", "f3", "out_features", count(12)),
        spec("relu", "r3"), spec("linear", "f4", "out_features", count(5))}) {
    specs.push_back(each);
  }
  out.model = build_layers(specs, {c.batch, c.channels, c.side, c.side}, context);
  ParameterGroup group;
  group.weight_decay = 1e-3;
  for (const NamedParameter& parameter : out.model->parameters()) {
    if (c.level != 0 && group.parameters.empty()) parameter.variable.value().fill(c.level);
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  const OptimizerType& type = optimizer_types().get(c.optimizer);
  Options options(type.fields);
  if (std::string(c.optimizer) == "sgd") options.set("momentum", 0.9);
  out.optimizer = type.build({group}, options);
  return out;
}

bool is_weight_of(const Network& net, const float* data) {
  return std::ranges::any_of(net.model->parameters(), [&](const NamedParameter& parameter) {
    const Tensor& value = parameter.variable.value();
    return value.raw_data() == data && value.shape().rank() > 1;
  });
}

// Changes weights of the first and of the last layer between two steps, as a pruning mask does.
std::function<void()> behind_update(const Case& c, const Network& net) {
  if (!c.changes_weights) return {};
  std::vector<NamedParameter> all = net.model->parameters();
  return [all] {
    for (const NamedParameter& parameter : all) {
      if (parameter.name == "c1.weight" || parameter.name == "f4.weight") {
        parameter.variable.value().fill(0.125);
      }
    }
  };
}

double rate(std::int64_t step) { return 0.05 / static_cast<double>(1 + step); }

std::vector<StepOutcome> train_recorded(const Case& c, const Network& net, bool joins,
                                        LossScale* scale = nullptr) {
  const Loader loader(noise(c), {.batch_size = c.batch, .seed = 9, .prefetch = false});
  std::string why;
  const auto steps = RecordedSteps::make(*net.model, net.optimizer.get(), c.clip_norm, loader,
                                         cuda(), &why, behind_update(c, net), nullptr, scale);
  std::vector<StepOutcome> out;
  EXPECT_NE(steps, nullptr) << why;
  if (!steps) return out;
  EXPECT_EQ(steps->plan().takes_gather(), c.side % 4 == 0);
  const auto update = DeviceUpdate(*net.optimizer, cuda(), 1).joined(0);
  EXPECT_TRUE(update != nullptr && steps->plan().joins_update(*update) == joins)
      << steps->plan().text();
  // All weights of the net, no biases.
  EXPECT_EQ(steps->plan().wants_copies(*update), c.precision != ComputePrecision::f32);
  for (const JoinedRow& row : update->rows) {
    const bool is_weight = row.w != nullptr && is_weight_of(net, row.w);
    EXPECT_EQ(row.copy.to != nullptr, is_weight && c.precision != ComputePrecision::f32);
  }
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    steps->start_epoch(epoch, 0, epoch * loader.batches_per_epoch());
    while (true) {
      while (steps->queue(rate, 4) > 0) {
      }
      if (steps->in_flight() == 0) break;
      const RecordedSteps::Launch launch = steps->collect();
      out.insert(out.end(), launch.outcomes, launch.outcomes + launch.steps);
    }
  }
  return out;
}

std::vector<StepResult> train_stepwise(const Case& c, const Network& net, LossScale* scale) {
  Loader loader(noise(c), {.batch_size = c.batch, .seed = 9, .prefetch = false});
  TrainStep train_step(*net.model, *net.optimizer, c.clip_norm, cuda(), 0, /*plans=*/true);
  if (scale != nullptr) train_step.scale_loss(scale);
  std::vector<StepResult> out;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.start_epoch(epoch);
    Batch batch;
    while (loader.next(batch)) {
      const auto step = static_cast<std::int64_t>(out.size());
      net.model->set_step(step);
      out.push_back(train_step.run(batch, rate(step)));
      if (const auto change = behind_update(c, net)) change();
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
  return out;
}

void expect_same_bits(const Case& c, bool joins = true) {
  SCOPED_TRACE(cat(c.optimizer, ", ", c.channels, " channels, batch ", c.batch, " of ", c.images));
  const Network recorded = network(c), planned = network(c);
  LossScale scales[2];
  for (LossScale& scale : scales) scale.restore({.scale = c.scale, .good_steps = 3});
  const auto scale_of = [&](int i) { return c.scale != 0 ? &scales[i] : nullptr; };
  const auto got = train_recorded(c, recorded, joins, scale_of(0));
  const auto want = train_stepwise(c, planned, scale_of(1));
  ASSERT_EQ(got.size(), want.size());
  std::int64_t skipped = 0;
  for (std::size_t i = 0; i < want.size() && c.scale != 0; ++i) {
    EXPECT_EQ(got[i].scale.skipped - skipped, want[i].skipped ? 1 : 0) << "step " << i;
    skipped = got[i].scale.skipped;
  }
  EXPECT_EQ(skipped > 0, c.scale > 0x1p20);
  EXPECT_LT(skipped, 8);
  EXPECT_EQ(scales[0].scale(), scales[1].scale());
  EXPECT_EQ(scales[0].state().good_steps, scales[1].state().good_steps);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(want[i].planned);
    EXPECT_EQ(static_cast<double>(got[i].loss), want[i].loss) << "step " << i;
    EXPECT_EQ(got[i].correct, want[i].correct) << "step " << i;
  }
  const std::vector<float> a = weights_of(recorded), b = weights_of(planned);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST_F(JoinedUpdateOnCuda, GivesTheBitsOfAnUpdateOfItsOwn) {
  expect_same_bits({});
  expect_same_bits({.optimizer = "adam"});
  expect_same_bits({.optimizer = "lion"});
  expect_same_bits({.optimizer = "adamw", .precision = ComputePrecision::bf16});
}

// The update also writes fp16/bf16 copies of the weights. If one launch of the recording replays
// several steps, the next step reads these copies. A launch of a single step has no copies. The
// copies are used even if a separate kernel gathers the images.
TEST_F(JoinedUpdateOnCuda, GivesTheBitsOfWeightsThatEachKernelRounds) {
  const Case kCases[] = {{},
                         {.channels = 3, .optimizer = "adam"},
                         {.side = 14},
                         {.side = 16, .pools_twice = true},
                         {.images = 700, .batch = 140},
                         {.changes_weights = true}};
  int turn = 0;
  for (const ComputePrecision half : {ComputePrecision::bf16, ComputePrecision::f16}) {
    for (Case each : kCases) {
      // The emulation is slow: it runs each case in one of the two types, alternately.
      const bool in_turn = (turn++ + (half == ComputePrecision::f16 ? 1 : 0)) % 2 == 0;
      if (!in_turn && !testing::takes_all_entries()) continue;
      each.precision = half;
      expect_same_bits(each);
    }
  }
}

// With a loss scale, the kernels that compute gradients divide the gradients by the scale, and the
// update is a separate kernel. With scale 2^23 the gradients of the logits exceed the range of f16
// at first, so some steps are skipped. With scale 2^12 no step is skipped.
TEST_F(JoinedUpdateOnCuda, DividesByTheScaleOfTheLossAndLeavesOutWhatOverflows) {
  expect_same_bits({.precision = ComputePrecision::f16, .scale = 0x1p12});
  expect_same_bits({.optimizer = "adam", .precision = ComputePrecision::f16, .scale = 0x1p23});
  expect_same_bits({.precision = ComputePrecision::f16, .clip_norm = 0.3, .scale = 0x1p23});
}

// The cases cover few, some and many thread blocks, several samples per block, and a batch that is
// too large for one kernel.
TEST_F(JoinedUpdateOnCuda, GathersBatchesOfAllSizes) {
  expect_same_bits({.images = 7, .batch = 3, .channels = 3});
  expect_same_bits({.images = 100, .batch = 40, .channels = 2, .side = 16});
  expect_same_bits({.images = 410, .batch = 300});
  expect_same_bits({.images = 410, .batch = 300, .precision = ComputePrecision::bf16});
}

// If the size of an image row is not a multiple of four bytes, a separate kernel gathers the
// images.
TEST_F(JoinedUpdateOnCuda, LeavesOtherImagesToTheirOwnKernel) { expect_same_bits({.side = 14}); }

// The loss is NaN from the first step on.
TEST_F(JoinedUpdateOnCuda, LeavesTheWeightsAfterALossThatIsNotFinite) {
  const Case c{.level = NAN};
  const Network before = network(c), after = network(c);
  const auto outcomes = train_recorded(c, after, true);
  ASSERT_EQ(outcomes.size(), 12u);
  for (const StepOutcome& each : outcomes) EXPECT_FALSE(std::isfinite(each.loss));
  const std::vector<float> a = weights_of(before), b = weights_of(after);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace convscope
