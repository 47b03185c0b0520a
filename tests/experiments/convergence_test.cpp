// SPDX-License-Identifier: Apache-2.0
// convergence_test.cpp: tests that a network learns equally well with every algorithm, in dynamic
// and in compiled steps.
#include <cmath>

#include "experiments/config/build.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/conv2d.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

struct Learned {
  double first_loss = 0, last_loss = 0;  // means of the first and the last ten steps
  double accuracy = 0;                   // percent of 800 unseen digits
};

Learned train(const std::string& conv, bool plan) {
  const std::string yaml =
      cat("name: convergence\n"
          "data: {set: synthetic_digits, train_size: 4000, test_size: 800, batch_size: 20}\n"
          "model: {type: lenet5, kernel_size: 3}\n"
          "optim: {type: sgd, lr: 0.05, momentum: 0.9}\n"
          "conv: {",
          conv, "}\n");
  TrainingSetup setup = setup_training(parse_config_text(yaml, "convergence.yaml"));
  TrainStep step(*setup.model, *setup.optimizer, 0, setup.device, 0, plan);
  std::vector<double> losses;
  Batch batch;
  constexpr int kEpochs = 3;
  const auto steps = static_cast<double>(kEpochs * setup.train->batches_per_epoch());
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    setup.train->start_epoch(epoch);
    while (setup.train->next(batch)) {
      const double left = 1 - static_cast<double>(losses.size()) / steps;
      losses.push_back(step.run(batch, 0.06 * left).loss);  // the rate falls to 0
    }
  }
  Learned out;
  for (std::size_t i = 0; i < 10; ++i) {
    out.first_loss += losses[i] / 10;
    out.last_loss += losses[losses.size() - 1 - i] / 10;
  }
  out.accuracy = evaluation_of(*setup.model, *setup.test, plan).accuracy;
  return out;
}

// At first the runs differ only by rounding. A different summation order in f32 changes little.
// Winograd F(6,3) has an error of up to a hundred eps, which is 1e-5 of the gradients. So after ten
// steps at rate 0.05 the losses agree within 1e-3. Later, training amplifies every difference, as
// it does for different seeds. At the end, every run must recognise nearly all digits, and the
// accuracies must agree within 2 points (16 of 800 images).
void expect_same(const Learned& a, const Learned& b, const std::string& name) {
  EXPECT_NEAR(a.first_loss, b.first_loss, 1e-3) << name;
  EXPECT_LT(a.last_loss, 0.2 * a.first_loss) << name;
  EXPECT_NEAR(a.accuracy, b.accuracy, 2.0) << name;
  EXPECT_GT(a.accuracy, 90.0) << name;
}

TEST(Convergence, every_algorithm_trains_lenet5_to_the_same_accuracy) {
  const Learned reference = train("algorithm: im2col_gemm", false);
  const Conv2dProblem c1 = Conv2dProblem::parse("n=20,c=1,h=28,w=28,k=6,r=3,s=3");
  const Conv2dProblem c2 = Conv2dProblem::parse("n=20,c=6,h=13,w=13,k=16,r=3,s=3");
  int trained = 0;
  for (const std::string& name : conv2d_algorithms(DeviceType::cpu).names()) {
    const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get(name);
    const auto takes = [&](const Conv2dProblem& problem) {
      bool all = true;
      for (const Direction d : kDirections) all = all && support_of(algorithm, problem, d).yes;
      return all;
    };
    if (name == "reference" || name.ends_with("_lesson")) continue;  // minutes
    if (!takes(c1) && !takes(c2)) continue;
    std::string conv = "algorithm: im2col_gemm, per_layer: {";
    if (takes(c1)) conv += cat("c1: ", name, takes(c2) ? ", " : "");
    if (takes(c2)) conv += cat("c2: ", name);
    expect_same(train(conv + "}", false), reference, name);
    ++trained;
  }
  EXPECT_GE(trained, 8);
}

TEST(Convergence, planned_steps_learn_as_the_dynamic_graph_does) {
  expect_same(train("algorithm: auto", true), train("algorithm: im2col_gemm", false), "planned");
}

}  // namespace
}  // namespace convscope::testing
