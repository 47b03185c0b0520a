// SPDX-License-Identifier: Apache-2.0
// training_cuda_test.cpp: tests training on `device cuda`: the losses are those of the CPU, two
// runs have the same bits, checkpoints move between devices, and a run resumes after failures.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/run_folder/environment.h"
#include "experiments/trainer/checkpoint.h"
#include "framework/memory/memory.h"
#include "layers/losses/cross_entropy.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/cuda.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::is_emulated;
using testing::kClasses;
using testing::small_setup;
using testing::TemporaryFolder;
using testing::text_of;
using TrainingOnCuda = testing::CudaTest;
using NetworksOnCuda = testing::CudaTest;
using ModulesOnCuda = testing::CudaTest;

// Returns a new optimiser for the model on its present device, with the kind and the momentum of
// `like`.
void renew_optimizer(TrainingSetup& setup) {
  ParameterGroup group;
  for (const NamedParameter& parameter : setup.model->parameters()) {
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  const OptimizerType& sgd = optimizer_types().get("sgd");
  Options options(sgd.fields);
  options.set("momentum", 0.9);
  setup.optimizer = sgd.build({group}, options);
}

TrainingSetup small_setup_on(Device device, std::uint64_t seed) {
  TrainingSetup setup = small_setup(seed);
  setup.model->to(device);
  setup.device = device;
  renew_optimizer(setup);
  return setup;
}

std::vector<float> weights_of(const Module& model) {
  std::vector<float> out;
  for (const NamedParameter& parameter : model.parameters()) {
    const std::vector<float> part = testing::values_of<float>(parameter.variable.value());
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

struct Ended {
  int code = -1;
  std::vector<float> weights;
  RunSummary summary;
};

Ended run(TrainingSetup setup, RunFolder& folder, bool resume) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  Ended out;
  out.code = trainer.run();
  out.weights = weights_of(*setup.model);
  out.summary = trainer.summary();
  return out;
}

Ended whole_run(Device device) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "whole", 7);
  return run(small_setup_on(device, 7), folder, false);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double gap = 0, size = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    gap += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(gap / size);
}

// ---- networks from configs ----

struct Curve {
  std::vector<double> losses;
  std::vector<float> weights;
};

ExperimentConfig config_of(const std::string& model, const std::vector<std::string>& overrides,
                           Device device) {
  std::vector<std::string> all = overrides;
  all.push_back("device=" + device.str());
  return parse_config_text(model, "network.yaml", {}, all);
}

// A LeNet for small images, because the emulation is slow.
const char* const kLenet = R"(
name: lenet
seed: 3
threads: 1
data: {set: synthetic_digits, train_size: 200, test_size: 20, image_size: 12, batch_size: 4}
layers:
  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 5, padding: 2}
  - {type: relu}
  - {type: max_pool2d, kernel_size: 2}
  - {type: conv2d, name: c2, out_channels: 8, kernel_size: 3}
  - {type: relu}
  - {type: max_pool2d, kernel_size: 2}
  - {type: flatten}
  - {type: linear, name: f3, out_features: 16}
  - {type: relu}
  - {type: linear, name: f4, out_features: 10}
optim: {type: sgd, lr: 0.02, momentum: 0.9}
)";
const char* const kResnet = R"(
name: resnet
seed: 3
threads: 1
data: {set: synthetic_digits, train_size: 40, test_size: 8, image_size: 16, batch_size: 2}
model: {type: resnet18, stem: cifar, widths: [2, 4, 4, 4]}
optim: {type: sgd, lr: 0.01, momentum: 0.9}
)";

Curve curve_of(const ExperimentConfig& config, int steps) {
  TrainingSetup setup = setup_training(config);
  setup.model->train();
  TrainStep step(*setup.model, *setup.optimizer, 0, setup.device, 0, setup.plan);
  LossScale scale;
  if (setup.scale_loss) step.scale_loss(&scale);
  setup.train->start_epoch(0);
  Curve curve;
  Batch batch;
  for (int i = 0; i < steps && setup.train->next(batch); ++i) {
    setup.model->set_step(i);
    curve.losses.push_back(
        step.run(batch,
                 setup.learning_rate({.step = i, .total_steps = steps, .steps_per_epoch = steps}))
            .loss);
  }
  curve.weights = weights_of(*setup.model);
  return curve;
}

// CPU and GPU add in different orders, so the gradients of each step differ by about sqrt(terms)
// 2^-24, and training amplifies the difference. The allowed relative difference of the losses is
// 1e-5 in step 0 and 1e-5 1.4^s in step s, but at most 1e-2.
void expect_same_curve(const Curve& got, const Curve& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t s = 0; s < want.losses.size(); ++s) {
    const double bound = std::min(1e-5 * std::pow(1.4, static_cast<double>(s)), 1e-2);
    EXPECT_NEAR(got.losses[s], want.losses[s], bound * std::max(1.0, want.losses[s]))
        << "step " << s;
  }
}

TEST_F(NetworksOnCuda, FollowTheCurveOfTheCpu) {
  const int lenet_steps = 20;
  const int resnet_steps = is_emulated() ? 4 : 20;
  for (const bool plan : {true, false}) {
    SCOPED_TRACE(plan ? "planned" : "dynamic");
    const std::vector<std::string> how = {plan ? "train.plan=true" : "train.plan=false"};
    expect_same_curve(curve_of(config_of(kLenet, how, cuda()), lenet_steps),
                      curve_of(config_of(kLenet, how, {}), lenet_steps));
    expect_same_curve(curve_of(config_of(kResnet, how, cuda()), resnet_steps),
                      curve_of(config_of(kResnet, how, {}), resnet_steps));
  }
}

TEST_F(NetworksOnCuda, GiveTheSameBitsTwice) {
  for (const char* model : {kLenet, kResnet}) {
    const ExperimentConfig config = config_of(model, {"train.plan=false"}, cuda());
    const Curve first = curve_of(config, 3);
    const Curve second = curve_of(config, 3);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.weights, second.weights);
  }
}

// Checks the relative L2 error of each gradient. Sums of n terms in different orders differ by
// about sqrt(n) 2^-24, and the later layers amplify this error. A batch norm over few values
// amplifies it most: the last batch norms of the small network see 8 values. On images of CIFAR's
// size two CPU algorithms differ by 3e-6.
TEST_F(NetworksOnCuda, HaveTheGradientsOfTheCpuTensorByTensor) {
  struct Case {
    const char* model;
    double bound;
  };
  // A GPU is fast enough for images and widths like CIFAR's.
  std::vector<std::string> sizes;
  if (!is_emulated()) {
    sizes = {"data.image_size=32", "data.batch_size=4"};
  }
  for (const Case& one : {Case{kLenet, 1e-5}, Case{kResnet, is_emulated() ? 2e-3 : 1e-4}}) {
    std::vector<std::string> how = sizes;
    if (!is_emulated() && one.model == kResnet) how.push_back("model.widths=[16, 32, 64, 128]");
    const auto gradients = [&](Device device) {
      TrainingSetup setup = setup_training(config_of(one.model, how, device));
      Batch batch;
      setup.train->start_epoch(0);
      EXPECT_TRUE(setup.train->next(batch));
      setup.model->train();
      const Variable y = setup.model->forward(Variable(batch.x.to(device)));
      softmax_cross_entropy(y, batch.labels.to(device)).backward();
      return setup.model;
    };
    const auto want = gradients({});
    const auto got = gradients(cuda());
    const auto cpu_parameters = want->parameters(), cuda_parameters = got->parameters();
    ASSERT_EQ(cpu_parameters.size(), cuda_parameters.size());
    for (std::size_t i = 0; i < cpu_parameters.size(); ++i) {
      ASSERT_EQ(cuda_parameters[i].variable.grad().device(), cuda());
      EXPECT_LE(distance(testing::values_of<float>(cuda_parameters[i].variable.grad()),
                         testing::values_of<float>(cpu_parameters[i].variable.grad())),
                one.bound)
          << cpu_parameters[i].name;
    }
  }
}

// ---- precision ----

TEST_F(NetworksOnCuda, TrainInEachPrecisionLikeInF32) {
  const int steps = 12;
  const Curve exact = curve_of(config_of(kLenet, {"train.plan=false"}, cuda()), steps);
  struct Case {
    const char* precision;
    double unit;  // relative error of a rounded operand
  };
  for (const Case& one : {Case{"tf32", 0x1p-11}, Case{"bf16", 0x1p-8}, Case{"f16", 0x1p-11}}) {
    SCOPED_TRACE(one.precision);
    const Curve rounded = curve_of(
        config_of(kLenet, {"train.plan=false", cat("precision=", one.precision)}, cuda()), steps);
    for (int s = 0; s < steps; ++s) {
      // The operands have independent rounding errors, most of which cancel in a sum. The remaining
      // error grows with the number of steps.
      EXPECT_NEAR(rounded.losses[static_cast<std::size_t>(s)],
                  exact.losses[static_cast<std::size_t>(s)], 4 * one.unit * (1 + s))
          << "step " << s;
    }
    // Losses in reduced precision must differ from those in f32. The emulated GPU is an exception
    // for TF32, because it multiplies in f32.
    if (!is_emulated() || std::string(one.precision) != "tf32") {
      EXPECT_NE(rounded.losses, exact.losses);
    }
    EXPECT_LT(distance(rounded.weights, exact.weights), 50 * one.unit);
  }
}

TEST_F(NetworksOnCuda, KeepWeightsAndGradientsInF32WhateverThePrecision) {
  TrainingSetup setup = setup_training(config_of(kLenet, {"precision=bf16"}, cuda()));
  Batch batch;
  setup.train->start_epoch(0);
  ASSERT_TRUE(setup.train->next(batch));
  const Variable y = setup.model->forward(Variable(batch.x.to(cuda())));
  EXPECT_EQ(y.dtype(), DType::f32);
  softmax_cross_entropy(y, batch.labels.to(cuda())).backward();
  for (const NamedParameter& parameter : setup.model->parameters()) {
    EXPECT_EQ(parameter.variable.dtype(), DType::f32) << parameter.name;
    EXPECT_EQ(parameter.variable.grad().dtype(), DType::f32) << parameter.name;
  }
}

TEST_F(TrainingOnCuda, ALossScaleIsHalvedWhenAGradientOverflowsAndTheUpdateIsLeftOut) {
  TrainingSetup setup = small_setup_on(cuda(), 7);
  TrainStep step(*setup.model, *setup.optimizer, 0, cuda(), 0, /*plans=*/false);
  LossScale scale;
  scale.restore({.scale = 0x1p130, .good_steps = 5, .skipped = 0});  // beyond f32
  step.scale_loss(&scale);
  setup.train->start_epoch(0);
  Batch batch;
  ASSERT_TRUE(setup.train->next(batch));
  const std::vector<float> before = weights_of(*setup.model);
  int skipped = 0;
  while (step.run(batch, 0.1).skipped) {
    EXPECT_EQ(weights_of(*setup.model), before);
    ASSERT_LT(++skipped, 20);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(scale.state().skipped, skipped);
  EXPECT_EQ(scale.scale(), std::ldexp(1.0, 130 - skipped));
  EXPECT_EQ(scale.state().good_steps, 1);
  EXPECT_NE(weights_of(*setup.model), before);
}

TEST_F(TrainingOnCuda, APowerOfTwoAsLossScaleChangesNoBit) {
  const auto weights = [](double factor) {
    TrainingSetup setup = small_setup_on(cuda(), 7);
    TrainStep step(*setup.model, *setup.optimizer, 0, cuda(), 0, /*plans=*/false);
    LossScale scale;
    scale.restore({.scale = factor});
    step.scale_loss(&scale);
    setup.train->start_epoch(0);
    Batch batch;
    for (int i = 0; i < 3 && setup.train->next(batch); ++i) step.run(batch, 0.05);
    return weights_of(*setup.model);
  };
  EXPECT_EQ(weights(1), weights(1024));
}

TEST(LossScale, DoublesAfterManyGoodSteps) {
  const Variable w(Tensor::from({1, 2}, {2}), true);
  LossScale scale;
  scale.restore({.scale = 8, .good_steps = LossScale::kGoodSteps - 2});
  for (const double expected : {8.0, 16.0}) {
    w.state()->grad = Tensor::from({8, 16}, {2});
    w.state()->grad_is_zero = false;
    EXPECT_TRUE(scale.unscale({{"w", w}}));
    EXPECT_EQ(scale.scale(), expected);
  }
  EXPECT_EQ(w.state()->grad.at(1), 2.0);
}

// ---- modules ----

TEST_F(ModulesOnCuda, MoveWithTheirGradientsAndBuffersAndStayTheSameVariables) {
  TrainingSetup setup = setup_training(config_of(kResnet, {}, {}));
  Module& model = *setup.model;
  for (const NamedParameter& parameter : model.parameters()) {
    parameter.variable.state()->grad =
        Tensor::full(parameter.variable.shape(), 0.5, DType::f32, Device{});
  }
  const std::vector<NamedParameter> before = model.parameters();
  const std::vector<float> weights = weights_of(model);
  model.to(cuda());
  const std::vector<NamedParameter> after = model.parameters();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].variable.state(), before[i].variable.state());
    EXPECT_EQ(before[i].variable.device(), cuda());
    EXPECT_EQ(before[i].variable.state()->grad.device(), cuda());
  }
  EXPECT_EQ(weights_of(model), weights);
  for (const NamedTensor& buffer : model.buffers()) EXPECT_EQ(buffer.tensor.device(), cuda());
  // The layers' own handles have moved too.
  model.eval();
  EXPECT_EQ(model.forward(Variable(Tensor::zeros({1, 1, 16, 16}, DType::f32, cuda()))).shape(),
            (Shape{1, 10}));
  model.to(Device{});
  EXPECT_EQ(weights_of(model), weights);
}

// ---- runs ----

TEST_F(TrainingOnCuda, EndsNearTheWeightsOfTheCpuAndWithTheSameBitsTwice) {
  const Ended on_cpu = whole_run({});
  const Ended first = whole_run(cuda());
  const Ended second = whole_run(cuda());
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(first.weights, second.weights);
  // In each of the 39 steps, CPU and GPU differ by about 1e-6 of the update. Momentum accumulates
  // these differences.
  EXPECT_LT(distance(first.weights, on_cpu.weights), 1e-4);
  EXPECT_NEAR(*first.summary.acc, *on_cpu.summary.acc, 2.01);  // one of 50 images
  EXPECT_EQ(first.summary.phases, "timed apart");
  EXPECT_GT(first.summary.avg_forward, 0.0);
  EXPECT_GT(first.summary.avg_update, 0.0);
  EXPECT_GT(first.summary.avg_backward_mem, first.summary.avg_forward_mem);
}

TEST_F(TrainingOnCuda, ASteadyEpochAsksTheDeviceForNoMemory) {
  EXPECT_EQ(whole_run(cuda()).summary.system_allocations, 0);
}

TEST_F(TrainingOnCuda, ACheckpointGoesOnOnTheOtherDevice) {
  for (const bool begins_on_cuda : {true, false}) {
    const Device first = begins_on_cuda ? cuda() : Device{};
    const Device second = begins_on_cuda ? Device{} : cuda();
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "parts", 7);
    TrainingSetup begin = small_setup_on(first, 7);
    begin.epochs_now = 2;
    EXPECT_EQ(run(std::move(begin), folder, false).code, 0);
    const Ended rest = run(small_setup_on(second, 7), folder, true);
    EXPECT_EQ(rest.code, 0);
    EXPECT_LT(distance(rest.weights, whole_run({}).weights), 1e-4);
  }
}

TEST_F(TrainingOnCuda, AStoppedRunGoesOnWithTheSameBits) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "parts", 7);
  TrainingSetup begin = small_setup_on(cuda(), 7);
  begin.epochs_now = 1;
  EXPECT_EQ(run(std::move(begin), folder, false).code, 0);
  EXPECT_EQ(run(small_setup_on(cuda(), 7), folder, true).weights, whole_run(cuda()).weights);
}

// Tests quantisers (per tensor and per channel, from the first step or later), changing masks, and
// filters that are removed during training. Where a step size is stored as exp(t), the calibrations
// mse and minmax are not tested. They may place the largest value exactly on the largest integer
// code. The last bit of exp, which differs between the devices, would then decide whether this
// value counts as clipped.
TEST_F(TrainingOnCuda, QuantisesAndPrunesLikeTheCpu) {
  const std::vector<std::vector<std::string>> ways = {
      {"quant={w_bits: 4, a_bits: 4, first_last_bits: 8, init: mean_abs}"},
      {"quant={w_bits: 4, a_bits: 4, per_channel: true, begin: 0.3, step: floored}"},
      {"sparsity={method: magnitude, target: 0.6, start: 0, end: 0.5, every_steps: 2}"},
      {"sparsity={method: rigl, target: 0.5, start: 0, every_steps: 2}"},
      {"sparsity={method: filter, target: 0.4, start: 0, end: 0.4, every_steps: 2, remove: true}"},
      {"quant={w_bits: 8, a_bits: 8, step: floored}",
       "sparsity={method: n_m, n: 2, m: 4, start: 0, end: 0.5, every_steps: 2, "
       "exclude: [c1]}"},
  };
  for (std::vector<std::string> way : ways) {
    SCOPED_TRACE(way[0]);
    way.insert(way.end(), {"data.train_size=16", "data.test_size=8", "train.epochs=2"});
    const auto trained = [&](Device device) {
      const TemporaryFolder root;
      RunFolder folder = RunFolder::create(root.path(), "way", 3);
      return run(setup_training(config_of(kLenet, way, device)), folder, false);
    };
    const Ended on_cpu = trained({});
    const Ended on_cuda = trained(cuda());
    EXPECT_EQ(on_cuda.code, 0);
    EXPECT_EQ(on_cuda.summary.params, on_cpu.summary.params);
    // CPU and GPU may round a value halfway between two integer codes differently, or prune
    // different weights of nearly equal size. In a layer of 16 values, one changed 4-bit code
    // changes the result by some percent.
    EXPECT_LT(distance(on_cuda.weights, on_cpu.weights), 0.05);
    if (way[0] == ways[0][0]) {
      EXPECT_EQ(trained(cuda()).weights, on_cuda.weights);
    }
  }
}

// The last step of an epoch counts clipped values, which needs the host, so this step is not
// replayed from the recording. The later steps must be recorded again, also after a change of the
// masks.
TEST_F(TrainingOnCuda, CompressedStepsStayRecordedFromEpochToEpoch) {
  for (const char* way :
       {"quant={w_bits: 4, a_bits: 4}",
        "sparsity={method: magnitude, target: 0.5, start: 0, end: 0.3, every_steps: 4}"}) {
    SCOPED_TRACE(way);
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "way", 3);
    const Ended done =
        run(setup_training(config_of(
                kLenet, {way, "data.train_size=48", "data.test_size=8", "train.epochs=3"}, cuda())),
            folder, false);
    EXPECT_EQ(done.summary.step, "recorded");
    EXPECT_EQ(text_of(folder.file("log.txt")).find("not recorded"), std::string::npos)
        << text_of(folder.file("log.txt"));
  }
}

// The config names an algorithm for the convolutions, so they run separately and not as one fused
// chain. The algorithm reads fp16/bf16 images in NHWC.
TEST_F(TrainingOnCuda, HalfPrecisionIsRecordedAndNamesItsLayout) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "half", 3);
  const Ended done =
      run(setup_training(config_of(kLenet,
                                   {"precision=bf16", "conv.algorithm=implicit_gemm",
                                    "data.train_size=48", "data.test_size=8", "train.epochs=2"},
                                   cuda())),
          folder, false);
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.summary.step, "recorded");
  EXPECT_EQ(text_of(folder.file("log.txt")).find("not recorded"), std::string::npos)
      << text_of(folder.file("log.txt"));
  EXPECT_NE(text_of(folder.file("layers.csv")).find("nhwc"), std::string::npos)
      << text_of(folder.file("layers.csv"));
}

TEST_F(TrainingOnCuda, TheEnvironmentNamesTheDevice) {
  const nlohmann::json environment = nlohmann::json::parse(environment_json({}));
  const nlohmann::json& device = environment.at("cuda").at("devices").at(0);
  EXPECT_TRUE(environment.at("cuda").at("available").get<bool>());
  EXPECT_FALSE(device.at("name").get<std::string>().empty());
  EXPECT_NE(device.at("compute_capability").get<std::string>().find('.'), std::string::npos);
  EXPECT_GT(device.at("memory_bytes").get<std::int64_t>(), 0);
  EXPECT_FALSE(device.at("driver").get<std::string>().empty());
  const TrainingSetup setup = setup_training(config_of(kLenet, {"precision=tf32"}, cuda()));
  EXPECT_EQ(setup.facts.device_name, device.at("name").get<std::string>());
  EXPECT_EQ(setup.facts.precision, "tf32");
}

// ---- failures ----

// The first `good` copies from the device to the host succeed. All later ones fail, as if the
// driver had crashed.
class FailingCopies {
 public:
  explicit FailingCopies(int good) : before_(backend_of(cuda())) {
    left = good;
    original = before_.copy_to_host;
    DeviceBackend failing = before_;
    failing.copy_to_host = [](int index, void* to, const void* from, std::size_t bytes) {
      if (--left < 0) fail(ErrorKind::kRun, "cuda", "cudaMemcpyAsync failed: injected");
      original(index, to, from, bytes);
    };
    register_device_backend(DeviceType::cuda, failing);
  }
  ~FailingCopies() { register_device_backend(DeviceType::cuda, before_); }

 private:
  static inline int left = 0;
  static inline void (*original)(int, void*, const void*, std::size_t) = nullptr;
  DeviceBackend before_;
};

TEST_F(TrainingOnCuda, AFaultInTheMiddleOfAStepLeavesACheckpointThatGoesOn) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "faulty", 7);
  TrainingSetup begin = small_setup_on(cuda(), 7);
  begin.epochs_now = 2;
  EXPECT_EQ(run(std::move(begin), folder, false).code, 0);
  const std::string checkpoint = folder.file("ckpt/last.safetensors");
  const std::string kept = text_of(checkpoint);
  {
    const FailingCopies copies(5);
    EXPECT_ERROR(ErrorKind::kRun, "injected", run(small_setup_on(cuda(), 7), folder, true));
  }
  EXPECT_EQ(read_run_status(folder.path()).state, "FAILED");
  EXPECT_EQ(text_of(checkpoint), kept);
  EXPECT_EQ(run(small_setup_on(cuda(), 7), folder, true).weights, whole_run(cuda()).weights);
}

TEST_F(TrainingOnCuda, OutOfMemoryNamesTheTensorAndASmallerBatchGoesOn) {
  TrainingSetup setup = setup_training(config_of(kLenet, {"train.plan=false"}, cuda()));
  TrainStep step(*setup.model, *setup.optimizer, 0, cuda(), 0, /*plans=*/false);
  setup.train->start_epoch(0);
  Batch batch;
  ASSERT_TRUE(setup.train->next(batch));
  step.run(batch, 0.01);
  release_cached(cuda());
  const MemoryStats stats = memory_stats(cuda());
  constexpr std::int64_t kRoom = 1 << 20;
  set_memory_limit(cuda(), stats.live_bytes + kRoom);
  Batch large{.x = Tensor::zeros({4096, 1, 12, 12}), .labels = Tensor::zeros({4096}, DType::i32)};
  EXPECT_ERROR(ErrorKind::kRun, "[memory] out of memory on cuda:0: expected space for a tensor ",
               step.run(large, 0.01));
  EXPECT_ERROR(ErrorKind::kRun, "use a smaller batch", step.run(large, 0.01));
  const StepResult small = step.run(batch, 0.01);
  EXPECT_TRUE(std::isfinite(small.loss));
  set_memory_limit(cuda(), 0);
}

TEST_F(NetworksOnCuda, ExecuteCodesInPlaceOfTheProductsOfF32) {
  const auto built = [](const char* precision) {
    return setup_training(config_of(
        kLenet, {"quant.method=lsq", "quant.execute=int8", cat("precision=", precision)}, cuda()));
  };
  for (const char* precision : {"f32", "tf32"}) EXPECT_TRUE(built(precision).quant->on_integers);
  for (const char* precision : {"bf16", "f16"}) {
    EXPECT_ERROR(ErrorKind::kConfig, "expected precision f32 or tf32", built(precision));
  }
}

}  // namespace
}  // namespace convscope
