// SPDX-License-Identifier: Apache-2.0
// config_build_test.cpp: builds the network and its optimiser from a config.
#include <gtest/gtest.h>

#include "experiments/config/build.h"
#include "tests/experiments/config_test_types.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

ExperimentConfig load(const std::string& more) {
  return parse_config_text("data: {set: mnist}\nmodel: {type: test_model, size: 3}\n" + more,
                           "small.yaml");
}

std::vector<std::string> names_of(const ParameterGroup& group) {
  std::vector<std::string> names;
  for (const OptimParameter& parameter : group.parameters) names.push_back(parameter.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(BuildModel, GivesEachLayerItsPolicy) {
  const ExperimentConfig config =
      load("conv: {algorithm: reference, per_layer: {c2: {forward: measure}}}\n");
  const std::shared_ptr<Module> model = build_model(config, {1, 28, 28}, 10);
  std::map<std::string, std::string> forward;
  for (const NamedModule& part : model->modules()) {
    if (auto* layer = dynamic_cast<testing::NamedLayer*>(part.module)) {
      forward[part.name] = layer->policy.forward;
    }
  }
  EXPECT_EQ(forward, (std::map<std::string, std::string>{{"c1", "reference"}, {"c2", "measure"}}));
}

TEST(BuildModel, RefusesAPolicyForALayerThatIsNotThere) {
  const ExperimentConfig config = load("conv: {per_layer: {c22: auto}}\n");
  EXPECT_ERROR(ErrorKind::kConfig, "got 'c22'; did you mean 'c2'? (known: c1, c2)",
               build_model(config, {1, 28, 28}, 10));
  const ExperimentConfig direction = load("conv: {per_layer: {c1.forwrd: auto}}\n");
  EXPECT_ERROR(ErrorKind::kConfig, "got 'c1.forwrd'; did you mean 'c1.forward'? (known: c1, c2)",
               build_model(direction, {1, 28, 28}, 10));
}

TEST(BuildModel, RefusesANetworkWithAnotherNumberOfClasses) {
  EXPECT_ERROR(ErrorKind::kConfig, "expected an output of shape [1,7]",
               build_model(load(""), {1, 28, 28}, 7));
}

TEST(BuildModel, CallsSizesThatDoNotFitAMistakeOfTheConfig) {
  const ExperimentConfig config = parse_config_text(
      "data: {set: mnist}\nlayers: [{type: conv2d, name: c1, out_channels: 2, kernel_size: 40}]\n",
      "small.yaml");
  EXPECT_ERROR(ErrorKind::kConfig, "c1", build_model(config, {1, 28, 28}, 10));
}

TEST(BuildModel, RefusesADeviceThatIsNotThere) {
  const ExperimentConfig config = load("device: cuda:9\n");
  EXPECT_ERROR(ErrorKind::kUnavailable, "cuda:9", build_model(config, {1, 28, 28}, 10));
}

TEST(BuildModel, BuildsAListOfLayers) {
  const ExperimentConfig config = parse_config_text(
      "data: {set: mnist}\nlayers: [{type: test_layer, size: 1, name: a}, {type: test_layer, size: "
      "1}]\n",
      "small.yaml");
  const std::shared_ptr<Module> model = build_model(config, {1, 28, 28}, 10);
  EXPECT_EQ(model->parameters().at(0).name, "a.weight");
  EXPECT_EQ(model->parameters().at(2).name, "test_layer_2.weight");
}

TEST(BuildOptimizer, PutsEachParameterIntoTheFirstGroupThatFits) {
  const ExperimentConfig config = load(
      "optim: {weight_decay: 0.5, groups: [{match: '*.bias', weight_decay: 0}, "
      "{match: 'c1.*', lr_scale: 2}]}\n");
  const std::shared_ptr<Module> model = build_model(config, {1, 28, 28}, 10);
  const std::unique_ptr<Optimizer> optimizer = build_optimizer(config, *model);
  ASSERT_EQ(optimizer->groups().size(), 3U);
  EXPECT_EQ(names_of(optimizer->groups()[0]), (Names{"c1.bias", "c2.bias"}));
  EXPECT_EQ(names_of(optimizer->groups()[1]), Names{"c1.weight"});
  EXPECT_EQ(names_of(optimizer->groups()[2]), Names{"c2.weight"});
  EXPECT_EQ(optimizer->groups()[0].weight_decay, 0.0);
  EXPECT_EQ(optimizer->groups()[1].weight_decay, 0.5);
  EXPECT_EQ(optimizer->groups()[1].lr_scale, 2.0);
  EXPECT_EQ(optimizer->groups()[2].lr_scale, 1.0);
}

TEST(BuildOptimizer, RefusesAGroupThatGetsNothing) {
  const auto build = [](const std::string& groups) {
    const ExperimentConfig config = load("optim: {groups: " + groups + "}\n");
    build_optimizer(config, *build_model(config, {1, 28, 28}, 10));
  };
  EXPECT_ERROR(ErrorKind::kConfig, "'c3.*'", build("[{match: 'c3.*'}]"));
  EXPECT_ERROR(ErrorKind::kConfig, "'c1.bias'", build("[{match: '*'}, {match: c1.bias}]"));
  EXPECT_ERROR(ErrorKind::kConfig, "c1.weight, c1.bias, c2.weight, c2.bias",
               build("[{match: '?.bias'}]"));
  EXPECT_NO_THROW(build("[{match: 'c?.b*s'}, {match: '**'}]"));
}

TEST(LearningRate, CountsWarmUpInEpochsOrSteps) {
  const SchedulePoint point{.step = 5, .total_steps = 100, .steps_per_epoch = 20};
  EXPECT_DOUBLE_EQ(learning_rate(load("optim: {lr: 1}\n"), point), 1.0);
  const double by_steps =
      learning_rate(load("optim: {lr: 1, schedule: {warmup_steps: 10}}\n"), point);
  const double by_epochs =
      learning_rate(load("optim: {lr: 1, schedule: {warmup_epochs: 0.5}}\n"), point);
  EXPECT_DOUBLE_EQ(by_steps, by_epochs);
  EXPECT_GT(by_steps, 0.4);
  EXPECT_LT(by_steps, 0.7);
}

TEST(LearningRate, FollowsTheBatchSizeWhenAsked) {
  const SchedulePoint point{.step = 0, .total_steps = 100, .steps_per_epoch = 20};
  ExperimentConfig config = load("optim: {lr: 0.5, lr_batch_size: 64}\n");
  config.data.batch_size = 4;
  EXPECT_DOUBLE_EQ(learning_rate(config, point), 0.5 / 16);
  config.optim.lr_batch_power = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(config, point), 0.5 / 4);
  config.data.batch_size = 256;
  EXPECT_DOUBLE_EQ(learning_rate(config, point), 0.5 * 2);
  config.optim.lr_batch_size = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, point), 0.5);
}

TEST(SampleInfo, IsKnownWithoutTheFiles) {
  ExperimentConfig config = load("");
  EXPECT_EQ(sample_info(config).shape, (Shape{1, 28, 28}));
  config.data.set = "cifar10";
  EXPECT_EQ(sample_info(config).shape, (Shape{3, 32, 32}));
  EXPECT_EQ(sample_info(config).classes, 10);
}

}  // namespace
}  // namespace convscope
