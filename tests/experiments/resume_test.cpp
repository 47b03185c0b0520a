// SPDX-License-Identifier: Apache-2.0
// resume_test.cpp: tests that a run which is stopped and resumed has the same bits as an
// uninterrupted run.
#include <csignal>

#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/signals.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

struct Ended {
  int code = -1;
  std::vector<float> weights;
  std::string metrics_without_time;
  double test_loss = 0;
};

// Returns metrics.jsonl without the values that depend on the clock.
std::string without_time(const std::string& metrics) {
  std::istringstream lines(metrics);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(line.find("\"step\""));
    out += line.substr(0, line.find(",\"images_per_s\"")) + "\n";
  }
  return out;
}

Ended run(TrainingSetup setup, RunFolder& folder, bool resume) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  Ended ended;
  ended.code = trainer.run();
  ended.weights = weights_of(*setup.model);
  ended.metrics_without_time = without_time(text_of(folder.file("metrics.jsonl")));
  ended.test_loss = trainer.state.test.loss;
  return ended;
}

Ended uninterrupted() {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "whole", 7);
  return run(small_setup(7), folder, false);
}

// The trainer calls the learning-rate function before each step, so this function can interrupt the
// run at a chosen step.
TrainingSetup interrupted_at(std::int64_t step, std::function<void()> what) {
  TrainingSetup setup = small_setup(7);
  setup.learning_rate = [step, what](const SchedulePoint& point) {
    if (point.step == step) what();
    return 0.05;
  };
  return setup;
}

TEST(Resume, after_sigterm_in_the_middle_of_an_epoch_gives_the_same_bits) {
  const Ended whole = uninterrupted();
  for (const std::int64_t step : {0, 6, 12, 13, 38}) {  // 13 steps per epoch
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "parts", 7);
    const Ended part = run(interrupted_at(step, [] { std::raise(SIGTERM); }), folder, false);
    EXPECT_EQ(part.code, 143);
    EXPECT_EQ(read_run_status(folder.path()).state, "INTERRUPTED");
    EXPECT_EQ(read_run_status(folder.path()).step, step + 1);  // the step was finished
    const Ended rest = run(small_setup(7), folder, true);
    EXPECT_EQ(rest.code, 0);
    EXPECT_EQ(rest.weights, whole.weights) << "interrupted at step " << step;
    EXPECT_EQ(rest.metrics_without_time, whole.metrics_without_time);
    EXPECT_EQ(rest.test_loss, whole.test_loss);
  }
}

TEST(Resume, after_a_signal_during_an_evaluation_gives_the_same_bits) {
  const Ended whole = uninterrupted();
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "parts", 7);
  TrainingSetup setup = small_setup(7);
  auto* model = dynamic_cast<TwoLinear*>(setup.model.get());
  model->before_forward = [model] {
    if (!model->is_training() && model->step() == 25) std::raise(SIGINT);  // after the second epoch
  };
  EXPECT_EQ(run(std::move(setup), folder, false).code, 130);
  EXPECT_EQ(read_run_status(folder.path()).epoch, 1);
  EXPECT_EQ(read_run_status(folder.path()).step, 26);
  const Ended rest = run(small_setup(7), folder, true);
  EXPECT_EQ(rest.code, 0);
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(rest.metrics_without_time, whole.metrics_without_time);
}

TEST(Resume, a_second_signal_ends_the_process_at_once) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        std::raise(SIGINT);
        std::raise(SIGTERM);
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(Resume, after_sigint_exits_with_130) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "parts", 7);
  EXPECT_EQ(run(interrupted_at(6, [] { std::raise(SIGINT); }), folder, false).code, 130);
}

TEST(Resume, after_a_crash_drops_the_rows_behind_the_checkpoint) {
  const Ended whole = uninterrupted();
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "parts", 7);
  // Step 31 is in the third epoch, so the newest checkpoint is that of the second epoch.
  const auto crash = [] { fail(ErrorKind::kRun, "test", "a crash"); };
  EXPECT_THROW(run(interrupted_at(31, crash), folder, false), Error);
  const Ended rest = run(small_setup(7), folder, true);
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(rest.metrics_without_time, whole.metrics_without_time);
  const std::string epochs = text_of(folder.file("epochs.csv"));
  EXPECT_EQ(std::count(epochs.begin(), epochs.end(), '\n'), 4);
}

TEST(Resume, before_the_first_checkpoint_starts_from_the_beginning) {
  const Ended whole = uninterrupted();
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "parts", 7);
  const auto crash = [] { fail(ErrorKind::kRun, "test", "a crash"); };
  EXPECT_THROW(run(interrupted_at(9, crash), folder, false), Error);
  const Ended rest = run(small_setup(7), folder, true);
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(rest.metrics_without_time, whole.metrics_without_time);
}

TEST(Resume, goes_on_after_a_limit_of_epochs) {
  const Ended whole = uninterrupted();
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "parts", 7);
  TrainingSetup limited = small_setup(7);
  limited.epochs_now = 2;
  EXPECT_EQ(run(std::move(limited), folder, false).code, 0);
  EXPECT_EQ(read_run_status(folder.path()).state, "INTERRUPTED");
  EXPECT_EQ(run(small_setup(7), folder, true).weights, whole.weights);
}

TEST(Resume, refuses_a_folder_that_a_process_works_on) {
  const TemporaryFolder root;
  const RunFolder folder = RunFolder::create(root.path(), "busy", 7);
  folder.set_status({.state = "RUNNING"});
  EXPECT_EQ(read_run_status(folder.path()).state, "RUNNING");
  try {
    RunFolder::reopen(folder.path());
    FAIL() << "two owners of one folder";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no process works on"), std::string::npos);
  }
}

TEST(Resume, a_run_whose_process_is_gone_is_killed_and_can_be_reopened) {
  const TemporaryFolder root;
  std::string path;
  {
    const RunFolder folder = RunFolder::create(root.path(), "gone", 7);
    folder.set_status({.state = "RUNNING"});
    path = folder.path();
  }
  const std::string half = path + "/ckpt/.last.safetensors.7.0.partial";
  std::ofstream(half) << "half a checkpoint";
  EXPECT_EQ(read_run_status(path).state, "KILLED");
  EXPECT_EQ(RunFolder::reopen(path).path(), path);
  EXPECT_FALSE(std::filesystem::exists(half));
}

TEST(Checkpoint, is_refused_for_another_network_with_the_first_difference) {
  class Other final : public Module {
   public:
    Other() { add_parameter("f1.weight", Tensor::zeros({3, 3})); }
    std::string kind() const override { return "other"; }
    Variable forward(const Variable& x) override { return x; }
    Shape output_shape(const Shape& input) const override { return input; }
  };
  const TemporaryFolder root;
  const TrainingSetup setup = small_setup(7);
  const std::string path = root.path() + "/c.safetensors";
  save_checkpoint(path, *setup.model, setup.optimizer.get(), {}, "name: x\n");
  EXPECT_EQ(checkpoint_config(path), "name: x\n");
  Other other;
  try {
    load_checkpoint(path, other, nullptr);
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("expected 'f1.weight' to be f32[3,3]"),
              std::string::npos)
        << error.what();
  }
}

TEST(Checkpoint, cut_short_is_an_io_error) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(7);
  const std::string path = root.path() + "/c.safetensors";
  save_checkpoint(path, *setup.model, setup.optimizer.get(), {}, "");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  try {
    load_checkpoint(path, *setup.model, setup.optimizer.get());
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 6) << error.what();
  }
}

TEST(RunFolder, two_runs_of_the_same_second_get_different_folders) {
  const TemporaryFolder root;
  const RunFolder first = RunFolder::create(root.path(), "twins", 1);
  const RunFolder second = RunFolder::create(root.path(), "twins", 1);
  EXPECT_NE(first.path(), second.path());
  first.set_status({.state = "RUNNING"});
  second.set_status({.state = "RUNNING"});
  EXPECT_EQ(std::filesystem::read_symlink(root.path() + "/twins/latest"), second.id());
  second.write("config.yaml", "name: twins\n");
  for (const char* given : {"/twins", "/twins/latest"}) {
    EXPECT_EQ(std::filesystem::canonical(resolve_run(root.path() + given)),
              std::filesystem::canonical(second.path()));
  }
}

TEST(RunFolder, that_cannot_be_made_is_an_io_error_that_names_it) {
  const TemporaryFolder root;
  std::ofstream(root.path() + "/file") << "not a folder";
  try {
    RunFolder::create(root.path() + "/file", "run", 1);
    FAIL() << "created";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find("/file/run"), std::string::npos) << error.what();
  }
}

TEST(RunFolder, a_full_disk_is_an_io_error) {
  AppendFile full("/dev/full", 0);
  try {
    full.append("a row\n");
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace convscope::testing
