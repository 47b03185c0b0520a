// SPDX-License-Identifier: Apache-2.0
// loss_test.cpp: tests that a run trains and evaluates with the loss of its config.
#include "layers/losses/loss.h"

#include "experiments/config/build.h"
#include "experiments/config/experiment_config.h"
#include "experiments/config/flat/flat_config.h"
#include "experiments/trainer/setup.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

TEST(TrainLoss, FallsDuringTrainingInEveryStepType) {
  for (const std::string& name : loss_types().names()) {
    const Loss loss(name);
    for (const bool plan : {false, true}) {
      const TemporaryFolder root;
      TrainingSetup setup = small_setup(1);
      setup.loss = loss;
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

constexpr const char* kRest = "data: {set: synthetic_digits}\nmodel: {type: lenet5}\n";

ExperimentConfig with_loss(const std::string& loss, const std::vector<std::string>& changes = {}) {
  return parse_config_text(kRest + (loss.empty() ? "" : "train: {loss: " + loss + "}\n"), "a.yaml",
                           {}, changes);
}

double value_of(const Loss& loss) {
  Tensor x = Tensor::zeros({2, 10});
  for (std::int64_t i = 0; i < 20; ++i) x.data<float>()[i] = static_cast<float>(i * i % 7);
  return loss(Variable(x), Tensor::from({3, 9}, {2}).to(DType::i32)).value().item();
}

TEST(TrainLoss, IsTheOneOfTheConfig) {
  EXPECT_EQ(with_loss("").train.loss.at(0).type, "cross_entropy");
  const ExperimentConfig mse = with_loss("mse");
  EXPECT_NE(to_yaml(mse).find("  loss: mse\n"), std::string::npos);
  EXPECT_EQ(value_of(setup_training(mse).loss), value_of(Loss("mse")));
  Options options;
  options.set("gamma", 0.5);
  EXPECT_EQ(value_of(setup_training(with_loss("{type: focal, gamma: 0.5}")).loss),
            value_of(Loss("focal", options)));
  EXPECT_NEAR(value_of(setup_training(with_loss("[{type: mse, weight: 0.25}, bce]")).loss),
              0.25 * value_of(Loss("mse")) + value_of(Loss("bce")), 1e-6);
}

TEST(TrainLoss, IsWrittenAsItIsRead) {
  const auto written = [](const std::string& loss, const std::vector<std::string>& changes = {}) {
    const std::string yaml = to_yaml(with_loss(loss, changes));
    EXPECT_EQ(to_yaml(parse_config_text(yaml, "a.yaml")), yaml);
    const std::size_t begin = yaml.find("  loss:"), end = yaml.find("\ncheckpoint:");
    return yaml.substr(begin, end - begin);
  };
  EXPECT_EQ(written(""), "  loss: cross_entropy");
  EXPECT_EQ(written("{type: focal, gamma: 2}"), "  loss: focal");
  EXPECT_EQ(written("{type: focal, alpha: 0.25}"),
            "  loss:\n    type: focal\n    weight: 1.0\n    gamma: 2.0\n    alpha: 0.25");
  EXPECT_EQ(written("{class_weights: [1, 2.5, 1, 1, 1, 1, 1, 1, 1, 1e-3]}"),
            "  loss:\n    type: cross_entropy\n    weight: 1.0\n    label_smoothing: 0.0\n"
            "    class_weights: [1.0, 2.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.001]");
  EXPECT_EQ(written("[cross_entropy, {type: dice, weight: 0.5}]"),
            "  loss:\n    - type: cross_entropy\n      weight: 1.0\n      label_smoothing: 0.0\n"
            "    - type: dice\n      weight: 0.5");
  EXPECT_EQ(written("{type: focal, gamma: 1}", {"train.loss=mse"}), "  loss: mse");
  EXPECT_EQ(written("{type: focal, gamma: 1}", {"train.loss.type=mse"}), "  loss: mse");
  EXPECT_EQ(written("focal", {"train.loss.gamma=1"}),
            "  loss:\n    type: focal\n    weight: 1.0\n    gamma: 1.0");
  EXPECT_EQ(written("[mse, {type: focal}]", {"train.loss.1.weight=3"}),
            "  loss:\n    - type: mse\n      weight: 1.0\n    - type: focal\n      weight: 3.0\n"
            "      gamma: 2.0");
}

TEST(TrainLoss, HasAColumnInEachForm) {
  const auto column = [](const std::string& loss, const std::string& key) {
    return to_text(flat_config(to_yaml(with_loss(loss)), "a.yaml").at(key));
  };
  EXPECT_EQ(column("mse", "train.loss"), "mse");
  EXPECT_EQ(column("{type: focal, gamma: 1}", "train.loss"), "focal");
  EXPECT_EQ(column("{type: focal, gamma: 1}", "train.loss.gamma"), "1.0");
  EXPECT_EQ(column("[cross_entropy, {type: dice, weight: 2}]", "train.loss"),
            "cross_entropy + dice");
  EXPECT_EQ(column("[cross_entropy, {type: dice, weight: 2}]", "train.loss.1.weight"), "2.0");
}

TEST(TrainLoss, HasANumberForEachClass) {
  const ExperimentConfig config = with_loss("[mse, {type: focal, class_weights: [1, 2, 3]}]");
  EXPECT_ERROR(ErrorKind::kConfig,
               "a.yaml:3:21: error: train.loss: expected 10 numbers of class_weights because the "
               "data set has 10 classes, got 3",
               build_model(config, {1, 28, 28}, 10));
  EXPECT_ERROR(
      ErrorKind::kConfig,
      "error: override 'train.loss={type: bce, pos_weight: [1]}': train.loss: expected 10 "
      "numbers of pos_weight because the data set has 10 classes, got 1",
      build_model(with_loss("bce", {"train.loss={type: bce, pos_weight: [1]}"}), {1, 28, 28}, 10));
}

}  // namespace
}  // namespace convscope::testing
