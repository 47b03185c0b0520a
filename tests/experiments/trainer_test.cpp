// SPDX-License-Identifier: Apache-2.0
// trainer_test.cpp: tests that the trainer learns, writes its run folder, and stops at a loss that
// is not finite.
#include "experiments/trainer/trainer.h"

#include <cmath>
#include <csignal>
#include <fstream>

#include "experiments/run_folder/environment.h"
#include "experiments/trainer/alarms.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/setup.h"
#include "framework/memory/memory.h"
#include "framework/simd/cpu_isa.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/call_program.h"

namespace convscope::testing {
namespace {

int run_quietly(TrainingSetup& setup, RunFolder& folder, bool resume = false) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  return trainer.run();
}

std::string error_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Trainer, overfits_a_small_set_in_30_steps) {
  TrainingSetup setup = small_setup(1, 0.1);
  TrainStep step(*setup.model, *setup.optimizer, 0, Device{});
  setup.train = std::make_unique<Loader>(bright_columns(16, 1), LoaderOptions{.batch_size = 16});
  Batch batch;
  double loss = 0;
  for (int i = 0; i < 30; ++i) {
    setup.train->start_epoch(i);
    ASSERT_TRUE(setup.train->next(batch));
    loss = step.run(batch, 0.1).loss;
  }
  EXPECT_LT(loss, 0.1);
}

TEST(Trainer, writes_the_whole_run_folder) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1);
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  EXPECT_EQ(run_quietly(setup, folder), 0);
  for (const char* name : {"status.json", "log.txt", "metrics.jsonl", "epochs.csv", "summary.json",
                           "report.html", "ckpt/last.safetensors", "ckpt/best.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.file(name))) << name;
  }
  EXPECT_EQ(setup.model->step(), 38);  // the last of 39 steps; dropout draws from this number
  EXPECT_TRUE(setup.model->is_training());
  EXPECT_EQ(read_run_status(folder.path()).state, "DONE");
  EXPECT_EQ(std::filesystem::read_symlink(root.path() + "/small/latest"), folder.id());

  const RunSummary summary = parse_summary(text_of(folder.file("summary.json")));
  EXPECT_EQ(summary.epochs, 3);
  EXPECT_EQ(summary.steps, 39);
  EXPECT_EQ(summary.timed_steps, 39 - kTimingWarmupSteps);
  EXPECT_GT(*summary.acc, 90.0);  // chance is 25 %
  EXPECT_GT(summary.avg_forward, 0.0);
  EXPECT_GT(summary.avg_forward_mem, 0.0);
  EXPECT_GT(summary.avg_backward_mem, summary.avg_forward_mem);

  const std::string metrics = text_of(folder.file("metrics.jsonl"));
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 39 / 5 + 3);
  const std::string epochs = text_of(folder.file("epochs.csv"));
  EXPECT_EQ(std::count(epochs.begin(), epochs.end(), '\n'), 4);
}

TEST(Trainer, stops_at_a_loss_that_is_no_number_and_says_where) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1, 1e9);
  RunFolder folder = RunFolder::create(root.path(), "nan", 1);
  const std::string text = error_of([&] { run_quietly(setup, folder); }, ErrorKind::kRun);
  EXPECT_NE(text.find("expected a finite loss"), std::string::npos) << text;
  EXPECT_NE(text.find("learning rate 1e+09"), std::string::npos) << text;
  const RunStatus status = read_run_status(folder.path());
  EXPECT_EQ(status.state, "FAILED");
  EXPECT_EQ(status.exit_code, 1);
  EXPECT_NE(status.reason.find("epoch 1"), std::string::npos) << status.reason;
}

TEST(Trainer, keeps_the_last_good_checkpoint_when_a_later_epoch_diverges) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1);
  setup.learning_rate = [](const SchedulePoint& point) { return point.step < 20 ? 0.05 : 1e30; };
  RunFolder folder = RunFolder::create(root.path(), "nan", 1);
  error_of([&] { run_quietly(setup, folder); }, ErrorKind::kRun);
  // These epochs are too short for the trainer to write files after each of them, so the results
  // checked here come from the end of the run.
  EXPECT_EQ(parse_summary(text_of(folder.file("summary.json"))).epochs, 1);
  TrainingSetup again = small_setup(2);
  RunFolder same = std::move(folder);
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(again, same, progress);
  trainer.resume();
  EXPECT_EQ(trainer.state.epoch, 1);
  EXPECT_EQ(trainer.state.step, 13);
  for (float weight : weights_of(*again.model)) EXPECT_TRUE(std::isfinite(weight));
}

// Training steps do not read the running statistics of a batch norm. So these statistics may be
// infinite while the loss is finite.
TEST(Trainer, keeps_the_checkpoint_before_one_with_a_number_that_is_not_finite) {
  for (const bool tested : {false, true}) {
    const TemporaryFolder root;
    TrainingSetup setup = setup_training(parse_config_text(
        "name: norm\nthreads: 1\n"
        "data: {set: synthetic_digits, train_size: 64, test_size: 16, batch_size: 16}\n"
        "layers: [{type: conv2d, out_channels: 4, kernel_size: 3}, {type: batch_norm2d},"
        " {type: flatten}, {type: linear, out_features: 10}]\n"
        "train: {epochs: 4, eval_every: 4}\n",
        "norm.yaml"));
    if (!tested) setup.test = nullptr;
    setup.learning_rate = [&model = *setup.model](const SchedulePoint& point) {
      for (const NamedTensor& buffer : model.buffers()) {
        if (point.step == 6) buffer.tensor.fill(std::numeric_limits<double>::infinity());
      }
      return 0.01;
    };
    RunFolder folder = RunFolder::create(root.path(), "norm", 1);
    const std::string text = error_of([&] { run_quietly(setup, folder); }, ErrorKind::kRun);
    EXPECT_NE(text.find("got inf in '"), std::string::npos) << text;
    EXPECT_NE(text.find("after step 8; the last good checkpoint is kept"), std::string::npos)
        << text;
    EXPECT_EQ(read_run_status(folder.path()).exit_code, 1);
    const std::string last = folder.file("ckpt/last.safetensors");
    EXPECT_EQ(load_checkpoint(last, *setup.model, setup.optimizer.get()).step, 4);
    EXPECT_EQ(not_finite(*setup.model, setup.optimizer.get()), "");
    EXPECT_FALSE(std::filesystem::exists(folder.file("ckpt/best.safetensors")));
  }
}

TEST(Trainer, names_what_is_not_finite_among_weights_and_the_states_of_the_optimiser) {
  TrainingSetup setup = small_setup(1);
  EXPECT_EQ(not_finite(*setup.model, setup.optimizer.get()), "");
  const OptimState state = setup.optimizer->state().at(1);
  state.tensor.fill(std::nan(""));
  EXPECT_EQ(not_finite(*setup.model, nullptr), "");
  EXPECT_EQ(not_finite(*setup.model, setup.optimizer.get()),
            "nan in 'optimizer/" + state.name + "'");
  setup.model->parameters().at(0).variable.value().fill(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(not_finite(*setup.model, nullptr), "-inf in 'f1.weight'");
}

TEST(Trainer, refuses_a_last_batch_that_a_layer_cannot_train_on) {
  const auto setup_of = [](const char* data, const char* plan) {
    return setup_training(parse_config_text(
        cat("name: one\nthreads: 1\ndata: {set: synthetic_digits, test_size: 8, ", data, "}\n",
            "model: {type: resnet18, stem: imagenet, widths: [2, 2, 2, 4]}\n",
            "train: {epochs: 1, plan: ", plan, "}\n"),
        "one.yaml"));
  };
  const char* const sentence =
      "[batch_norm2d] expected more than one value for each channel while training because the "
      "variance of one value is 0, got x [1,4,1,1]";
  for (const char* plan : {"true", "false"}) {
    TrainingSetup setup = setup_of("train_size: 5, batch_size: 4", plan);
    const std::string before = error_of([&] { check_batches(setup); }, ErrorKind::kRun);
    EXPECT_NE(before.find(sentence), std::string::npos) << before;
    EXPECT_NE(before.find("'; the last batch of an epoch has 1 of 5 images"), std::string::npos)
        << before;
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "one", 1);
    const std::string in_step = error_of([&] { run_quietly(setup, folder); }, ErrorKind::kRun);
    EXPECT_NE(in_step.find(sentence), std::string::npos) << in_step;
    EXPECT_EQ(read_run_status(folder.path()).exit_code, 1);
  }
  const TrainingSetup ones = setup_of("train_size: 4, batch_size: 1", "true");
  const std::string text = error_of([&] { check_batches(ones); }, ErrorKind::kRun);
  EXPECT_NE(text.find("a batch has 1 image;"), std::string::npos) << text;
  check_batches(setup_of("train_size: 6, batch_size: 4", "true"));
  check_batches(setup_of("train_size: 4, batch_size: 4", "true"));
}

TEST(Trainer, commands_that_time_steps_refuse_the_same_batches) {
  const TemporaryFolder folder;
  std::ofstream(folder / "one.yaml")
      << "name: one\ndata: {set: synthetic_digits, batch_size: 1}\nlayers:\n"
         "  - {type: conv2d, out_channels: 2, kernel_size: 28}\n  - {type: batch_norm2d}\n"
         "  - {type: flatten}\n  - {type: linear, out_features: 10}\n";
  for (const char* command : {"run one.yaml", "bench net one.yaml --min-time 0.0001 --rounds 1",
                              "explain one.yaml --ranks 2"}) {
    const testing::Called called = testing::call_program(command, folder.path());
    EXPECT_EQ(called.code, 1) << command << ": " << called.err;
    EXPECT_NE(called.err.find(" in layer 'batch_norm2d_1'; "), std::string::npos) << called.err;
  }
}

TEST(Trainer, warns_in_the_log_of_a_network_that_only_guesses) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1, 0.0);
  for (const NamedParameter& parameter : setup.model->parameters())
    parameter.variable.value().zero();
  setup.epochs = 20;  // 260 steps
  RunFolder folder = RunFolder::create(root.path(), "guess", 1);
  EXPECT_EQ(run_quietly(setup, folder), 0);
  const std::string log = text_of(folder.file("log.txt"));
  EXPECT_NE(log.find("warning: the loss stays at ln(4)"), std::string::npos) << log;
  EXPECT_NE(log.find("up to step 200 (learning rate 0)"), std::string::npos) << log;
}

TEST(Trainer, lenet5_learns_the_synthetic_digits) {
  TrainingSetup setup = setup_training(parse_config_text(
      "name: quick\nthreads: 1\n"
      "data: {set: synthetic_digits, train_size: 3000, test_size: 500, batch_size: 32}\n"
      "model: {type: lenet5}\n"
      "optim: {type: adam, lr: 0.002, schedule: {type: cosine}}\n"
      "train: {epochs: 2}\n"
      "expect: {test_acc_min: 75}\n",  // 88.8 to 90.8 over six seeds; guessing gives 10
      "quick.yaml"));
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "quick", 1);
  EXPECT_EQ(run_quietly(setup, folder), 0);
  EXPECT_EQ(setup.facts.kernel_size, "5");
  EXPECT_EQ(setup.facts.params, 44426);
  EXPECT_NE(setup.layers_csv.find("c2,conv2d,32x16x8x8,2416,5,"), std::string::npos);
}

TEST(Trainer, fails_when_an_expectation_is_missed) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1, 1e-9);
  setup.epochs = 1;
  setup.expect.test_acc_min = 99.9;
  RunFolder folder = RunFolder::create(root.path(), "gate", 1);
  const std::string text = error_of([&] { run_quietly(setup, folder); }, ErrorKind::kRun);
  EXPECT_NE(text.find("expected a test accuracy of at least 99.9 %"), std::string::npos) << text;
  EXPECT_EQ(read_run_status(folder.path()).exit_code, 1);
  EXPECT_TRUE(std::filesystem::exists(folder.file("summary.json")));
}

TEST(Trainer, meets_a_loss_gate_exactly_at_its_bound) {
  const TemporaryFolder root;
  TrainingSetup first = small_setup(1);
  RunFolder folder = RunFolder::create(root.path(), "gate", 1);
  ASSERT_EQ(run_quietly(first, folder), 0);
  const RunSummary summary = parse_summary(text_of(folder.file("summary.json")));
  TrainingSetup second = small_setup(1);
  second.expect.test_loss_max = *summary.test_loss;
  RunFolder other = RunFolder::create(root.path(), "gate", 1);
  EXPECT_EQ(run_quietly(second, other), 0);
}

TEST(Trainer, evaluates_in_eval_mode_and_puts_the_mode_back) {
  TrainingSetup setup = small_setup(1);
  auto* model = dynamic_cast<TwoLinear*>(setup.model.get());
  int batches = 0;
  model->before_forward = [&] {
    ++batches;
    EXPECT_FALSE(model->is_training());
    EXPECT_FALSE(grad_enabled());
  };
  const Evaluation result = evaluation_of(*setup.model, *setup.test);
  EXPECT_EQ(batches, 4);
  EXPECT_EQ(result.images, 50);  // the last batch has 2: means are over images, not batches
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(grad_enabled());
}

TEST(Trainer, weighs_the_memory_of_a_step) {
  TrainingSetup setup = small_setup(1);
  TrainStep step(*setup.model, *setup.optimizer, 0, Device{}, setup.data_bytes);
  const std::int64_t base = memory_stats(Device{}).live_bytes;
  Batch batch;
  setup.train->start_epoch(0);
  ASSERT_TRUE(setup.train->next(batch));
  const StepResult first = step.run(batch, 0.05);
  // The lower bound of the memory holds because the backward pass needs the hidden layer (before or
  // after the ReLU) and the probabilities. The upper bound allows a few copies of all values.
  const std::int64_t hidden_bytes = 16 * 16 * 4;
  const std::int64_t logits_bytes = 16 * 4 * 4;
  EXPECT_GE(first.forward_bytes, hidden_bytes + logits_bytes);
  EXPECT_LE(first.forward_bytes, 4 * (hidden_bytes + logits_bytes));
  EXPECT_GE(first.backward_peak_bytes, base + first.forward_bytes);
}

TEST(Trainer, clips_gradients_when_asked) {
  TrainingSetup free = small_setup(1, 1.0);
  TrainingSetup clipped = small_setup(1, 1.0);
  const std::vector<float> before = weights_of(*free.model);
  Batch batch;
  free.train->start_epoch(0);
  ASSERT_TRUE(free.train->next(batch));
  TrainStep(*free.model, *free.optimizer, 0, Device{}).run(batch, 1.0);
  TrainStep(*clipped.model, *clipped.optimizer, 1e-3, Device{}).run(batch, 1.0);
  const auto distance = [&](const Module& model) {
    double sum = 0;
    const std::vector<float> after = weights_of(model);
    for (std::size_t i = 0; i < after.size(); ++i) sum += std::pow(after[i] - before[i], 2.0);
    return std::sqrt(sum);
  };
  EXPECT_GT(distance(*free.model), 0.01);
  EXPECT_NEAR(distance(*clipped.model), 1e-3, 1e-6);  // a step of lr 1 is the clipped norm itself
}

TEST(Alarms, the_loss_of_guessing_is_reported_once) {
  LossAlarm alarm(10);
  int rings = 0;
  for (int step = 1; step <= 1000; ++step) {
    if (alarm.observe(std::log(10.0) + 0.01 * (step % 2 == 0 ? 1 : -1))) {
      ++rings;
      EXPECT_EQ(step, LossAlarm::kWindow);
    }
  }
  EXPECT_EQ(rings, 1);
}

TEST(Alarms, a_falling_loss_is_no_alarm) {
  LossAlarm alarm(10);
  for (int step = 0; step < 1000; ++step) {
    EXPECT_FALSE(alarm.observe(std::log(10.0) * std::exp(-step / 500.0)));
  }
}

TEST(Environment, names_the_machine_and_notices_a_change_of_it) {
  const TemporaryFolder root;
  const std::string path = root.path() + "/env.json";
  const std::string text = environment_json({"convscope", "run"});
  std::ofstream(path) << text;
  EXPECT_EQ(environment_change(path), "");
  std::string other = text;
  const std::string isa(name_of(current_isa()));
  other.replace(other.find("\"isa\": \"" + isa), 8 + isa.size(), "\"isa\": \"other");
  std::ofstream(path) << other;
  EXPECT_NE(environment_change(path).find("isa was 'other' and is '" + isa + "'"),
            std::string::npos);
}

TEST(Progress, the_bar_fits_its_width_and_shows_the_figures) {
  const ProgressPoint point{
      .epoch = 2, .epochs = 10, .batch = 50, .batches = 100, .loss = 0.25, .images_per_s = 18420};
  const std::string text = bar_text(point, 65, 80);
  EXPECT_EQ(text,
            "epoch 3/10 [===========            ]  50%  loss 0.2500  18420 img/s  left 01:05");
  EXPECT_LT(bar_text(point, 65, 30).size(), 30u);
  EXPECT_EQ(duration_text(3723), "1:02:03");
}

}  // namespace
}  // namespace convscope::testing
