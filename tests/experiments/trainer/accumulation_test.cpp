// SPDX-License-Identifier: Apache-2.0
// accumulation_test.cpp: tests gradient accumulation, which computes a batch as micro-batches.
#include <csignal>
#include <set>

#include "experiments/config/experiment_config.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

struct AccumulatedRun {
  std::vector<float> weights;
  TrainingState state;
};

// Runs 3 epochs of 13 steps; the last batch of an epoch has 8 images. `stop_at`: a step after which
// the run is interrupted and resumed.
AccumulatedRun run_in_chunks(int chunks, std::int64_t stop_at = -1, bool plan = true,
                             const Loss& loss = Loss()) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  Progress progress(Progress::Mode::quiet);
  AccumulatedRun out;
  for (const bool resumes : {false, true}) {
    if (resumes && stop_at < 0) break;
    TrainingSetup setup = small_setup(1);
    setup.share.chunks = chunks;
    setup.plan = plan;
    setup.loss = loss;
    bool stops = !resumes;
    setup.learning_rate = [&stops, stop_at](const SchedulePoint& point) {
      if (stops && point.step == stop_at) {
        stops = false;
        std::raise(SIGTERM);
      }
      return 0.05;
    };
    Trainer trainer(setup, folder, progress);
    if (resumes) trainer.resume();
    EXPECT_EQ(trainer.run(), !resumes && stop_at >= 0 ? 128 + SIGTERM : 0);
    out = {weights_of(*setup.model), trainer.state};
  }
  return out;
}

TEST(Accumulation, FollowsTheWholeBatchUpToRounding) {
  Options weighted;
  weighted.set("class_weights", std::vector<double>{1, 8, 0.5, 3});
  for (const Loss& loss : {Loss(), Loss("cross_entropy", weighted)}) {
    const AccumulatedRun whole = run_in_chunks(1, -1, true, loss);
    for (const int chunks : {2, 3, 4}) {
      for (const bool plan : {true, false}) {
        const AccumulatedRun parts = run_in_chunks(chunks, -1, plan, loss);
        ASSERT_EQ(parts.weights.size(), whole.weights.size());
        for (std::size_t i = 0; i < whole.weights.size(); ++i) {
          EXPECT_NEAR(parts.weights[i], whole.weights[i], 1e-4) << chunks << " chunks";
        }
        EXPECT_EQ(parts.state.step, 39) << "steps are updates";
        EXPECT_EQ(parts.state.run_steps.images, whole.state.run_steps.images);
        EXPECT_EQ(parts.state.last_epoch.images, 200);
        EXPECT_NEAR(parts.state.last_epoch.loss(), whole.state.last_epoch.loss(), 1e-5);
      }
    }
    EXPECT_NE(run_in_chunks(3, -1, true, loss).weights, whole.weights) << "the test shows nothing";
  }
}

TEST(Accumulation, ResumesInTheMiddleOfAnEpochWithTheSameBits) {
  EXPECT_EQ(run_in_chunks(3, 17).weights, run_in_chunks(3).weights);
}

// Dropout uses the low 32 bits.
TEST(Accumulation, DrawsOtherDropoutMasksInEachPartAndStep) {
  std::set<std::uint32_t> seen;
  for (std::int64_t step = 0; step < 50; ++step) {
    for (std::int64_t part = 0; part < 12; ++part) {
      seen.insert(static_cast<std::uint32_t>(step_of_part(step, part, 12)));
    }
    EXPECT_EQ(step_of_part(step, 0, 1), step);
  }
  EXPECT_EQ(seen.size(), 600u);
}

const char* const kAccumulating =
    "data: {set: synthetic_digits, batch_size: 48}\n"
    "model: {type: lenet5}\n";

TEST(Accumulation, ComesFromTheConfig) {
  const auto share = [](const std::string& lines) {
    return share_of(parse_config_text(kAccumulating + lines, "a.yaml"), nullptr);
  };
  const Share four = share("train: {accumulate: 4}\n");
  EXPECT_EQ(four.chunks, 4);
  EXPECT_EQ(images_at_once(48, four), 12);
  EXPECT_FALSE(share("").is_shared());
  EXPECT_ERROR(ErrorKind::kConfig, "got data.batch_size 48 and 49 parts on 1 process",
               share("train: {accumulate: 49}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "expected either train.accumulate or train.deterministic_ranks",
               share("train: {accumulate: 2, deterministic_ranks: true}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "because train.accumulate computes a batch in parts",
               share("train: {accumulate: 2}\nquant: {w_bits: 8, a_bits: 8}\n"));
}

}  // namespace
}  // namespace convscope::testing
