// SPDX-License-Identifier: Apache-2.0
// early_stop_test.cpp: tests that a run ends when validation results stop improving. A resumed run
// continues to count epochs without an improvement.
#include "experiments/trainer/checkpoint.h"
#include "tests/experiments/training_fixture.h"

namespace convscope {
namespace {

using testing::bright_columns;
using testing::small_setup;
using testing::TemporaryFolder;
using testing::text_of;

// From the second epoch on the learning rate is 0, so results improve only in the first epoch.
TrainingSetup setup_that_stands_still(std::int64_t patience) {
  TrainingSetup setup = small_setup(3);
  setup.val = std::make_unique<Loader>(bright_columns(50, 5),
                                       LoaderOptions{.batch_size = 16, .shuffle = false});
  setup.learning_rate = [](const SchedulePoint& point) {
    return point.step < point.steps_per_epoch ? 0.05 : 0.0;
  };
  setup.epochs = 20;
  setup.early_stop.patience = patience;
  return setup;
}

struct Ended {
  std::int64_t epoch;
  RunStatus status;
  std::string log;
};

Ended run(TrainingSetup setup, RunFolder& folder, bool resumes = false) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resumes) trainer.resume();
  EXPECT_EQ(trainer.run(), 0);
  return {trainer.state.epoch, read_run_status(folder.path()), text_of(folder.file("log.txt"))};
}

TEST(EarlyStop, EndsAfterPatienceEvaluationsWithoutABetterOne) {
  for (const char* metric : {"val_loss", "val_acc"}) {
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "still", 1);
    TrainingSetup setup = setup_that_stands_still(3);
    setup.early_stop.metric = metric;
    const Ended ended = run(std::move(setup), folder);
    EXPECT_EQ(ended.epoch, 4) << metric;  // the first one, and three without improvement
    EXPECT_EQ(ended.status.state, "DONE");
    EXPECT_NE(ended.log.find(
                  cat("stopped early after epoch 4 of 20: ", metric, " was best after epoch 1")),
              std::string::npos)
        << ended.log;
    EXPECT_TRUE(std::filesystem::exists(folder.file("ckpt/last.safetensors")));
  }
}

TEST(EarlyStop, ARunThatGetsBetterGoesOn) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "better", 1);
  TrainingSetup setup = setup_that_stands_still(1);
  setup.epochs = 3;
  setup.learning_rate = [](const SchedulePoint&) { return 0.01; };
  EXPECT_EQ(run(std::move(setup), folder).epoch, 3);
}

// Only an improvement larger than min_delta counts. In this training no improvement is that large.
TEST(EarlyStop, SmallGainsDoNotCount) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "small_gains", 1);
  TrainingSetup setup = setup_that_stands_still(2);
  setup.learning_rate = [](const SchedulePoint&) { return 0.0001; };
  setup.early_stop.min_delta = 1.0;
  EXPECT_EQ(run(std::move(setup), folder).epoch, 3);
}

TEST(EarlyStop, CountsOnAfterAResume) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "resumed", 1);
  TrainingSetup setup = setup_that_stands_still(4);
  setup.epochs_now = 3;
  const Ended paused = run(std::move(setup), folder);
  EXPECT_EQ(paused.epoch, 3);
  EXPECT_EQ(paused.status.state, "INTERRUPTED");
  EXPECT_EQ(run(setup_that_stands_still(4), folder, /*resumes=*/true).epoch, 5);
}

}  // namespace
}  // namespace convscope
