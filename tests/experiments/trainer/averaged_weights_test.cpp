// SPDX-License-Identifier: Apache-2.0
// averaged_weights_test.cpp: tests that evaluations and checkpoints use averages of the weights.
#include "experiments/config/experiment_config.h"
#include "experiments/trainer/checkpoint.h"
#include "optim/slow_weights.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

ExperimentConfig averaging(const std::string& optim) {
  return parse_config_text(
      "data: {set: synthetic_digits, train_size: 120, test_size: 60, batch_size: 24}\n"
      "layers: [{type: conv2d, out_channels: 4, kernel_size: 3}, {type: batch_norm2d},"
      " {type: relu}, {type: flatten}, {type: linear, out_features: 10}]\n"
      "train: {epochs: 2}\n"
      "checkpoint: {best: true}\n"
      "optim: {" +
          optim + "}\n",
      "a.yaml");
}

// A finished run.
struct AveragedRun {
  explicit AveragedRun(const std::string& optim) : setup(setup_training(averaging(optim))) {
    RunFolder folder = RunFolder::create(root.path(), "small", 1);
    path = folder.path();
    Progress progress(Progress::Mode::quiet);
    Trainer trainer(setup, folder, progress);
    EXPECT_EQ(trainer.run(), 0);
    state = trainer.state;
  }
  double test_loss() { return evaluation_of(*setup.model, *setup.test).loss; }
  double loss_of_file(const std::string& name, const std::string& optim) const {
    TrainingSetup other = setup_training(averaging(optim));
    load_checkpoint(path + "/ckpt/" + name, *other.model, nullptr);
    return evaluation_of(*other.model, *other.test).loss;
  }
  TemporaryFolder root;
  std::string path;
  TrainingSetup setup;
  TrainingState state;
};

TEST(AveragedWeights, AreEvaluatedAndReadFromTheCheckpoint) {
  const std::string optim = "ema: {decay: 0.8}";
  AveragedRun run(optim);
  const double trained = run.test_loss();
  {
    const AveragedWeights averages(run.setup.optimizer.get());
    EXPECT_EQ(run.test_loss(), run.state.test.loss);
  }
  EXPECT_EQ(run.test_loss(), trained) << "the weights have come back";
  EXPECT_NE(trained, run.state.test.loss);
  EXPECT_EQ(run.loss_of_file("last.safetensors", optim), run.state.test.loss);
  if (run.state.best_epoch == 2) {
    EXPECT_EQ(run.loss_of_file("best.safetensors", optim), run.state.test.loss);
  }
}

TEST(AveragedWeights, CanBeLeftOutOfEvaluations) {
  const std::string optim = "ema: {decay: 0.8, evaluate: false}";
  AveragedRun run(optim);
  EXPECT_EQ(run.test_loss(), run.state.test.loss);
  EXPECT_EQ(run.loss_of_file("last.safetensors", optim), run.state.test.loss);
}

TEST(AveragedWeights, DoNotChangeTheTraining) {
  EXPECT_EQ(weights_of(*AveragedRun("ema: {decay: 0.8}").setup.model),
            weights_of(*AveragedRun("").setup.model));
}

TEST(AveragedWeights, HaveKeysInTheConfig) {
  const ExperimentConfig config =
      averaging("ema: {decay: 0.99}, lookahead: {k: 5, alpha: 0.8}, type: sgdw");
  EXPECT_EQ(config.optim.ema, (EmaConfig{.decay = 0.99}));
  EXPECT_EQ(config.optim.lookahead, (LookaheadConfig{.k = 5, .alpha = 0.8}));
  const std::string text = to_yaml(config);
  EXPECT_EQ(to_yaml(parse_config_text(text, "b.yaml")), text);
  EXPECT_EQ(to_yaml(averaging("")).find("  ema:"), std::string::npos);
  EXPECT_ERROR(ErrorKind::kConfig, "optim.lookahead: expected the key 'k', got none",
               averaging("lookahead: {alpha: 0.8}"));
  EXPECT_ERROR(ErrorKind::kConfig, "optim.ema.decay", averaging("ema: {decay: 1}"));
}

}  // namespace
}  // namespace convscope::testing
