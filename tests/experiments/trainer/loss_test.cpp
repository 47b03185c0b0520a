// SPDX-License-Identifier: Apache-2.0
// loss_test.cpp: tests that a run trains and evaluates with the loss of its config.
#include "layers/losses/loss.h"

#include "experiments/config/experiment_config.h"
#include "experiments/trainer/setup.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

TEST(TrainLoss, FallsDuringTrainingInEveryStepType) {
  for (const auto& [name, type] : loss_types().entries()) {
    const auto& loss = type;  // clang's OpenMP captures no structured binding
    for (const bool plan : {false, true}) {
      const TemporaryFolder root;
      TrainingSetup setup = small_setup(1);
      setup.loss = &loss;
      setup.plan = plan;
      const auto evaluate = [&] {
        return Evaluator(*setup.model, *setup.test, Device{}, plan, loss).run();
      };
      const double before = evaluate().loss;
      RunFolder folder = RunFolder::create(root.path(), "small", 1);
      Progress progress(Progress::Mode::quiet);
      Trainer trainer(setup, folder, progress);
      EXPECT_EQ(trainer.run(), 0);
      EXPECT_LT(evaluate().loss, 0.7 * before) << name;
      EXPECT_GT(evaluate().accuracy, 60) << name;  // chance is 25 %
      EXPECT_EQ(trainer.state.test.loss, evaluate().loss) << name;
    }
  }
}

TEST(TrainLoss, IsTheOneOfTheConfig) {
  const std::string config = "data: {set: synthetic_digits}\nmodel: {type: lenet5}\n";
  EXPECT_EQ(parse_config_text(config, "a.yaml").train.loss, "cross_entropy");
  const ExperimentConfig mse = parse_config_text(config + "train: {loss: mse}\n", "a.yaml");
  EXPECT_NE(to_yaml(mse).find("  loss: mse\n"), std::string::npos);
  EXPECT_EQ(setup_training(mse).loss, &loss_types().get("mse"));
}

}  // namespace
}  // namespace convscope::testing
