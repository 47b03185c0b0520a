// SPDX-License-Identifier: Apache-2.0
// reported_numbers_test.cpp: tests the times, memory and numbers of images that a run reports.
// Layers and an optimiser sleep for a known time and use a known number of bytes.
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "framework/graph/simple_operation.h"
#include "framework/memory/memory.h"
#include "layers/flatten.h"
#include "layers/linear/linear.h"
#include "layers/sequential.h"
#include "tests/experiments/csv_rows.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

void rest(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

constexpr double kForwardMs = 4, kBackwardMs = 16, kUpdateMs = 8;
constexpr std::int64_t kMiBytes = 1 << 20;
constexpr std::int64_t kKept = kMiBytes;
// Temporary memory of forward and backward in bytes. The forward pass uses more tensor memory and
// less workspace than the backward pass.
constexpr std::int64_t kForwardMoment = 32 * kMiBytes, kBackwardMoment = 8 * kMiBytes;
constexpr std::size_t kForwardWork = 2 * kMiBytes, kBackwardWork = 3 * kMiBytes;

// y = x, at a known cost.
class Costly final : public SimpleOperation {
 public:
  Costly() : SimpleOperation("costly") {}
  Keeps keeps(const std::vector<Shape>&) const override {
    return {.saved = {{.shape = {kKept}, .dtype = DType::u8}}};
  }
  void run(const Forward& a) const override {
    rest(kForwardMs);
    const Tensor moment = Tensor::empty({kForwardMoment}, DType::u8);
    const Workspace work(Device{}, kForwardWork);
    a.y.copy_from(a.x[0]);
  }
  void run(const Backward& a) const override {
    rest(kBackwardMs);
    const Tensor moment = Tensor::empty({kBackwardMoment}, DType::u8);
    const Workspace work(Device{}, kBackwardWork);
    if (a.dx[0].defined()) a.dx[0].copy_from(a.dy);
  }
};

class CostlyLayer final : public Module {
 public:
  std::string kind() const override { return "costly"; }
  Variable forward(const Variable& x) override { return apply(std::make_unique<Costly>(), {x}); }
  Shape output_shape(const Shape& input) const override { return input; }
};

// An optimiser that sleeps and changes nothing.
class SlowOptimizer final : public Optimizer {
 public:
  explicit SlowOptimizer(std::vector<ParameterGroup> groups) : Optimizer(std::move(groups)) {}
  std::string kind() const override { return "slow"; }
  void step(double) override { rest(kUpdateMs); }
  std::vector<OptimState> state() override { return {}; }
};

constexpr std::int64_t kImages = 50, kBatch = 16;  // 16, 16, 16 and 2: 12 steps in 3 epochs
constexpr std::int64_t kTimedSteps = 7, kTimedImages = 16 + 16 + 2 + 16 + 16 + 16 + 2;

// Returns a network that classifies every image correctly: the class is the brightest column.
TrainingSetup costly_setup(bool plan) {
  TrainingSetup setup;
  LayerContext context;
  const auto model = std::make_shared<Sequential>();
  model->add("flat", std::make_shared<Flatten>());
  // The first layer has parameters, so the backward pass must compute the gradient of the costly
  // layer.
  for (const char* name : {"columns", "same"}) {
    const bool first = name[0] == 'c';
    const auto layer = std::make_shared<Linear>(
        LinearOptions{.in_features = first ? 16 : kClasses, .out_features = kClasses}, context);
    for (const NamedParameter& parameter : layer->parameters()) {
      parameter.variable.value().zero();
      if (parameter.name != "weight") continue;
      float* const w = parameter.variable.value().data<float>();
      const std::int64_t inputs = parameter.variable.shape()[1];
      for (std::int64_t i = 0; i < inputs; ++i) w[i % kClasses * inputs + i] = 1;
    }
    model->add(name, layer);
    if (first) model->add("costly", std::make_shared<CostlyLayer>());
  }
  setup.model = model;
  ParameterGroup group;
  for (const NamedParameter& parameter : model->parameters()) {
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  setup.optimizer = std::make_unique<SlowOptimizer>(std::vector<ParameterGroup>{group});
  setup.train =
      std::make_unique<Loader>(bright_columns(kImages, 1), LoaderOptions{.batch_size = kBatch});
  setup.test =
      std::make_unique<Loader>(bright_columns(kImages, 2), LoaderOptions{.batch_size = kBatch});
  setup.learning_rate = [](const SchedulePoint&) { return 0.01; };
  setup.epochs = 3;
  setup.plan = plan;
  setup.config_yaml = "name: costly\n";
  setup.facts.name = "costly";
  return setup;
}

struct Reported {
  nlohmann::json summary;
  std::vector<CsvRow> epochs;
  double live_mib = 0;  // before the run
  double wall_s = 0;    // of the run, by a clock of this file
};

Reported report_of(TrainingSetup setup) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "numbers", 1);
  Progress progress(Progress::Mode::quiet);
  Reported out;
  out.live_mib = static_cast<double>(memory_stats(Device{}).live_bytes) / kMiBytes;
  Trainer trainer(setup, folder, progress);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(trainer.run(), 0);
  out.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.summary = nlohmann::json::parse(text_of(folder.file("summary.json")));
  out.epochs = csv_rows(text_of(folder.file("epochs.csv")));
  return out;
}

class ColumnsOfARun : public ::testing::TestWithParam<bool> {};

TEST_P(ColumnsOfARun, HoldTheTimesOfTheirOwnPhase) {
  const Reported done = report_of(costly_setup(GetParam()));
  ASSERT_EQ(done.epochs.size(), 3u);
  for (const char* phase : {"avg_forward", "avg_backward", "avg_update"}) {
    const double least = phase[4] == 'f' ? kForwardMs : phase[4] == 'b' ? kBackwardMs : kUpdateMs;
    EXPECT_GE(done.summary.at(phase).get<double>(), 1e-3 * least) << phase;
    EXPECT_GE(std::stod(done.epochs[1].at(phase)), 1e-3 * least) << phase;
  }
  // Checks which phases take longest. The times differ so much that a busy machine does not change
  // the order.
  EXPECT_LT(std::stod(done.epochs[1].at("avg_forward")),
            std::stod(done.epochs[1].at("avg_backward")));
  EXPECT_LT(std::stod(done.epochs[1].at("avg_update")),
            std::stod(done.epochs[1].at("avg_backward")));
  EXPECT_LT(done.summary.at("avg_wait").get<double>(),
            done.summary.at("avg_forward").get<double>());
  const auto of = [&](const char* key) { return done.summary.at(key).get<double>(); };
  EXPECT_NEAR(of("avg_step"), of("avg_forward") + of("avg_backward") + of("avg_update"), 1e-9);
}

TEST_P(ColumnsOfARun, CountTheImagesThatThereAre) {
  const Reported done = report_of(costly_setup(GetParam()));
  const auto of = [&](const char* key) { return done.summary.at(key).get<double>(); };
  ASSERT_EQ(of("timed_steps"), kTimedSteps);
  const double seconds = kTimedSteps * (of("avg_step") + of("avg_wait"));
  EXPECT_NEAR(of("images_per_s") * seconds, kTimedImages, 1e-6);
  EXPECT_EQ(of("train_acc"), 100);
  EXPECT_EQ(of("acc"), 100);
  for (const CsvRow& row : done.epochs) {
    const double s = std::stod(row.at("avg_step")) + std::stod(row.at("avg_wait"));
    EXPECT_NEAR(std::stod(row.at("images_per_s")) * 4 * s, kImages, 1e-3);  // six digits each
    EXPECT_EQ(std::stod(row.at("train_acc")), 100);
  }
}

TEST_P(ColumnsOfARun, HoldTheMemoryInMebibytes) {
  const Reported done = report_of(costly_setup(GetParam()));
  const auto of = [&](const char* key) { return done.summary.at(key).get<double>(); };
  EXPECT_GE(of("avg_forward_mem"), 1);
  EXPECT_LT(of("avg_forward_mem"), 1.04);  // 1.0486 would be millions instead of MiB
  EXPECT_GE(of("avg_backward_mem"), done.live_mib + 1 + 8 + 3);
  EXPECT_LT(of("avg_backward_mem"), done.live_mib + 1 + 8 + 3 + 0.2);
  EXPECT_EQ(of("peak_workspace"), 3);
  const CsvRow& row = done.epochs[1];
  EXPECT_NEAR(std::stod(row.at("avg_forward_mem")), of("avg_forward_mem"), 0.01);
  EXPECT_NEAR(std::stod(row.at("avg_backward_mem")), of("avg_backward_mem"), 0.2);
  EXPECT_EQ(std::stod(row.at("peak_workspace")), 3);
}

// The reported inference time is that of a full batch without the loss. The stored bytes are those
// of all weights in f32.
TEST_P(ColumnsOfARun, HoldTheTimeOfAnInferenceAndTheStoredBytes) {
  const Reported done = report_of(costly_setup(GetParam()));
  const auto of = [&](const char* key) { return done.summary.at(key).get<double>(); };
  EXPECT_GE(of("avg_inference"), 1e-3 * kForwardMs);
  EXPECT_LT(of("avg_inference"), 1e-3 * (kForwardMs + kBackwardMs));  // contains no backward
  EXPECT_EQ(of("weight_bytes"), 4 * (16 * kClasses + kClasses + kClasses * kClasses + kClasses));
  // After training, the program measured the inference time on batches of 4 ms for 0.25 s. The
  // run's reported duration excludes this measurement.
  EXPECT_GT(done.wall_s - of("seconds"), 0.25);
  EXPECT_GT(of("seconds"), 1e-3 * 12 * (kForwardMs + kBackwardMs + kUpdateMs));  // all 12 steps
}

// An unfinished run has no final weights to time.
TEST_P(ColumnsOfARun, LeaveOutTheTimeOfAnInferenceUntilTheRunHasEnded) {
  TrainingSetup first = costly_setup(GetParam());
  first.epochs_now = 2;
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "numbers", 1);
  Progress progress(Progress::Mode::quiet);
  EXPECT_EQ(Trainer(first, folder, progress).run(), 0);
  const auto summary = [&] { return nlohmann::json::parse(text_of(folder.file("summary.json"))); };
  EXPECT_TRUE(summary().at("avg_inference").is_null());
  EXPECT_TRUE(summary().at("weight_bytes").is_null());
  TrainingSetup rest = costly_setup(GetParam());
  Trainer resumed(rest, folder, progress);
  resumed.resume();
  EXPECT_EQ(resumed.run(), 0);
  EXPECT_GE(summary().at("avg_inference").get<double>(), 1e-3 * kForwardMs);
  // A resumed run with no epochs left to train measures the inference time again at its end.
  TrainingSetup again = costly_setup(GetParam());
  Trainer ended(again, folder, progress);
  ended.resume();
  EXPECT_EQ(ended.run(), 0);
  EXPECT_GE(summary().at("avg_inference").get<double>(), 1e-3 * kForwardMs);
}

// Memory of data sets is not memory of a step.
TEST_P(ColumnsOfARun, LeaveOutTheData) {
  TrainingSetup setup = costly_setup(GetParam());
  setup.data_bytes = 2 * kMiBytes;
  const Reported done = report_of(std::move(setup));
  EXPECT_LT(done.summary.at("avg_backward_mem").get<double>(), done.live_mib + 12.2 - 2);
}

TEST_P(ColumnsOfARun, ShowTheRateOfTheLastStepOfTheWholeRun) {
  TrainingSetup setup = costly_setup(GetParam());
  setup.learning_rate = [](const SchedulePoint& point) {
    EXPECT_EQ(point.total_steps, 12);
    EXPECT_EQ(point.steps_per_epoch, 4);
    return 0.001 * static_cast<double>(point.step);
  };
  const Reported done = report_of(std::move(setup));
  for (int epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_NEAR(std::stod(done.epochs[static_cast<std::size_t>(epoch - 1)].at("lr")),
                0.001 * (4 * epoch - 1), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(PlannedAndDynamic, ColumnsOfARun, ::testing::Bool());

TEST(InferenceTime, NeedsAFullBatch) {
  TrainingSetup setup = small_setup(1);
  Loader few(bright_columns(5, 2), {.batch_size = 16});
  EXPECT_FALSE(Evaluator(*setup.model, few, Device{}, true).time().has_value());
  EXPECT_TRUE(setup.model->is_training());
  Loader enough(bright_columns(16, 2), {.batch_size = 16});
  const auto time = Evaluator(*setup.model, enough, Device{}, true).time();
  ASSERT_TRUE(time.has_value());
  EXPECT_GT(time->batch_s, 0);
  EXPECT_TRUE(setup.model->is_training());
}

TEST(StepTotals, AreMeansOfWhatEachStepSaid) {
  StepTotals totals;
  totals.add({.images = 16,
              .forward_s = 0.1,
              .backward_s = 0.2,
              .update_s = 0.05,
              .forward_bytes = 100,
              .backward_peak_bytes = 500,
              .workspace_peak_bytes = 70},
             0.05);
  totals.add({.images = 8,
              .forward_s = 0.3,
              .backward_s = 0.6,
              .update_s = 0.15,
              .forward_bytes = 50,
              .backward_peak_bytes = 300,
              .workspace_peak_bytes = 30},
             0.05);
  EXPECT_DOUBLE_EQ(totals.phase(totals.forward_s), 0.2);
  EXPECT_DOUBLE_EQ(totals.phase(totals.backward_s), 0.4);
  EXPECT_DOUBLE_EQ(totals.phase(totals.update_s), 0.1);
  EXPECT_DOUBLE_EQ(totals.mean(totals.busy_s()), 0.7);
  EXPECT_DOUBLE_EQ(totals.mean(totals.wait_s), 0.05);
  EXPECT_DOUBLE_EQ(totals.images_per_s(), 24 / 1.5);
  EXPECT_DOUBLE_EQ(totals.mean(totals.forward_bytes), 75);
  EXPECT_DOUBLE_EQ(totals.mean(totals.backward_peak_bytes), 400);
  EXPECT_EQ(totals.workspace_peak_bytes, 70);  // the largest, not the last
  // A recorded step has no separate phases.
  totals.add({.images = 4, .whole_s = 0.4}, 0);
  EXPECT_DOUBLE_EQ(totals.phase(totals.forward_s), 0.2);
  EXPECT_DOUBLE_EQ(totals.mean(totals.busy_s()), 0.6);
}

TEST(StepTotals, LossesAreWeighedByImages) {
  LossTotals losses;
  losses.add({.loss = 1, .images = 30, .correct = 15});
  losses.add({.loss = 4, .images = 10, .correct = 0});
  EXPECT_DOUBLE_EQ(losses.loss(), 1.75);
  EXPECT_DOUBLE_EQ(losses.accuracy(), 37.5);
}

TEST(Evaluation, DoesNotDependOnTheSizeOfItsBatches) {
  TrainingSetup setup = small_setup(1);
  const auto in_batches = [&](std::int64_t size) {
    Loader loader(bright_columns(50, 2), {.batch_size = size, .shuffle = false});
    return evaluation_of(*setup.model, loader);
  };
  const Evaluation single = in_batches(1);
  for (const std::int64_t size : {16, 49, 50, 64}) {
    const Evaluation other = in_batches(size);
    EXPECT_EQ(other.images, 50);
    EXPECT_EQ(other.accuracy, single.accuracy) << size;
    EXPECT_NEAR(other.loss, single.loss, 1e-6) << size;  // of f32 means
  }
}

}  // namespace
}  // namespace convscope::testing
