// SPDX-License-Identifier: Apache-2.0
// removal_test.cpp: `sparsity: {remove: true}`: the network shrinks in the middle of a run.
#include <algorithm>
#include <cmath>
#include <csignal>

#include "experiments/run_folder/run_summary.h"
#include "experiments/trainer/checkpoint.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

// The run has 20 steps per epoch, 60 in all. The masks are final after step 20 (`end: 0.33`), so
// the pruned filters are removed at the start of the second epoch.
std::string yaml_of(const char* remove, const char* optim, const char* more = ", end: 0.33") {
  return cat(
      "name: removed\n"
      "data: {set: synthetic_digits, train_size: 320, test_size: 50, batch_size: 16}\n"
      "model: {type: lenet5}\n",
      "optim: {", optim,
      "}\n"
      "train: {epochs: 3}\n"
      "threads: 1\n"
      "sparsity: {method: filter, target: 0.5, every_steps: 4, remove: ",
      remove, more, "}\n");
}

constexpr const char* kSgd = "type: sgd, lr: 0.02, momentum: 0.9, weight_decay: 0.001";
constexpr const char* kAdam = "type: adam, lr: 0.001";

struct Ended {
  std::vector<float> weights;  // of the last layer, from which nothing is removed
  RunSummary summary;
};

Ended run(TrainingSetup setup, RunFolder& folder, bool resume, int wanted_code) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  EXPECT_EQ(trainer.run(), wanted_code);
  Ended out;
  for (const NamedParameter& parameter : setup.model->parameters()) {
    if (parameter.name != "f5.bias") continue;
    const Tensor value = parameter.variable.value();
    out.weights.assign(value.data<float>(), value.data<float>() + value.numel());
  }
  out.summary = trainer.summary();
  return out;
}

TrainingSetup setup_of(const std::string& yaml) {
  return setup_training(parse_config_text(yaml, "removed.yaml"));
}

TEST(Removal, goes_on_as_the_masked_network_would_with_half_the_filters) {
  for (const char* optim : {kSgd, kAdam}) {
    const TemporaryFolder root;
    RunFolder masked_folder = RunFolder::create(root.path(), "masked", 1);
    const Ended masked = run(setup_of(yaml_of("false", optim)), masked_folder, false, 0);
    RunFolder folder = RunFolder::create(root.path(), "removed", 1);
    const Ended removed = run(setup_of(yaml_of("true", optim)), folder, false, 0);
    EXPECT_EQ(masked.summary.execution, "masked dense");
    EXPECT_EQ(removed.summary.execution, "compact dense");
    EXPECT_LT(removed.summary.params, masked.summary.params / 2);
    // The two runs sum in different orders during 40 steps. If the removal lost the momentum, these
    // biases would change by about 1e-3, a thousand times the effect of rounding.
    ASSERT_EQ(removed.weights.size(), masked.weights.size());
    for (std::size_t i = 0; i < masked.weights.size(); ++i) {
      EXPECT_NEAR(removed.weights[i], masked.weights[i], 1e-5f) << optim << " " << i;
    }
    // The summary holds times and memory of the small network only. They come from the last two
    // epochs, without warm-up steps.
    EXPECT_EQ(removed.summary.timed_steps, 40 - kTimingWarmupSteps);
    EXPECT_LT(removed.summary.avg_backward_mem, masked.summary.avg_backward_mem);
    EXPECT_NE(text_of(folder.file("layers.csv")).find("c1"), std::string::npos);
    EXPECT_NE(text_of(folder.file("layers.csv")), text_of(masked_folder.file("layers.csv")));
  }
}

TEST(Removal, takes_layers_without_names_that_keep_channels_apart) {
  const auto ended = [](const char* remove) {
    const TemporaryFolder root;
    std::string yaml = yaml_of(remove, kSgd);
    const std::string model = "model: {type: lenet5}\n";
    yaml.replace(yaml.find(model), model.size(),
                 "layers: [{type: conv2d, out_channels: 8, kernel_size: 3, stride: 2}, "
                 "{type: batch_norm2d}, {type: silu}, {type: layer_scale, init: 1}, {type: conv2d, "
                 "out_channels: 8, kernel_size: 3, stride: 2}, {type: gelu}, {type: flatten}, "
                 "{type: linear, out_features: 10, name: f5}]\n");
    RunFolder folder = RunFolder::create(root.path(), "run", 1);
    return run(setup_of(yaml), folder, false, 0);
  };
  const Ended masked = ended("false"), removed = ended("true");
  EXPECT_LT(removed.summary.params, 0.6 * static_cast<double>(masked.summary.params));
  ASSERT_EQ(removed.weights.size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(removed.weights[i], masked.weights[i], 1e-5f);
}

TEST(Removal, interrupted_before_and_behind_it_ends_with_the_same_bits) {
  const std::string yaml = yaml_of("true", kSgd);
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "whole", 1);
  const Ended whole = run(setup_of(yaml), folder, false, 0);
  for (const std::int64_t step : {7, 19, 20, 33, 55}) {
    RunFolder parts = RunFolder::create(root.path(), "parts", 1);
    TrainingSetup setup = setup_of(yaml);
    setup.learning_rate = [step, rate = setup.learning_rate](const SchedulePoint& point) {
      if (point.step == step) std::raise(SIGTERM);
      return rate(point);
    };
    run(std::move(setup), parts, false, 143);
    const Ended rest = run(setup_of(yaml), parts, true, 0);
    EXPECT_EQ(rest.weights, whole.weights) << "step " << step;
    EXPECT_EQ(rest.summary.params, whole.summary.params);
    EXPECT_EQ(rest.summary.execution, "compact dense");
    EXPECT_EQ(text_of(parts.file("sparsity.csv")), text_of(folder.file("sparsity.csv")));
  }
}

TEST(Removal, checkpoint_holds_the_config_of_the_smaller_network) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "removed", 1);
  const Ended removed = run(setup_of(yaml_of("true", kSgd)), folder, false, 0);
  const std::string checkpoint = folder.file("ckpt/last.safetensors");
  TrainingSetup setup = setup_of(checkpoint_config(checkpoint));
  EXPECT_EQ(setup.model->parameter_count(), removed.summary.params);
  load_checkpoint(checkpoint, *setup.model, setup.optimizer.get());
  EXPECT_EQ(evaluation_of(*setup.model, *setup.test).accuracy, *removed.summary.acc);
}

TEST(Removal, refuses_what_it_cannot_do) {
  EXPECT_ERROR(ErrorKind::kConfig, "final before the last epoch",
               setup_of(yaml_of("true", kSgd, ", end: 0.9")));
  EXPECT_ERROR(ErrorKind::kConfig, "method filter or channel",
               parse_config_text("data: {set: synthetic_digits}\nmodel: {type: lenet5}\n"
                                 "sparsity: {method: magnitude, remove: true}\n",
                                 "a.yaml"));
}

}  // namespace
}  // namespace convscope::testing
