// SPDX-License-Identifier: Apache-2.0
// deform_config_test.cpp: tests configs with a deformable convolution: the learning rate of the
// offset branch, quantisers and masks on the weight, table rows, and resuming.
#include <csignal>

#include "experiments/config/build.h"
#include "experiments/run_folder/layer_table.h"
#include "layers/losses/cross_entropy.h"
#include "quant/quantize_network.h"
#include "sparsity/prunable_network.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

const Shape kSample{2, 8, 8};

ExperimentConfig config_of(const std::string& more, const std::string& keys = "") {
  return parse_config_text(
      cat("data: {set: synthetic_digits}\nlayers:\n"
          "  - {type: conv2d, name: c, out_channels: 4, kernel_size: 3, padding: 1}\n"
          "  - {type: relu, name: r}\n"
          "  - {type: deform_conv2d, name: d, out_channels: 6, kernel_size: 3, padding: 1",
          keys,
          "}\n  - {type: flatten, name: flat}\n  - {type: linear, name: f, out_features: 10}\n",
          more),
      "deform.yaml");
}

std::shared_ptr<Module> model_of(const ExperimentConfig& config) {
  return build_model(config, kSample, 10);
}

Variable loss_of(Module& model) {
  const Tensor labels = Tensor::zeros({3}, DType::i32);
  return softmax_cross_entropy(model.forward(Variable(normal({3, 2, 8, 8}, DType::f32))), labels);
}

Variable parameter(const Module& model, const std::string& name) {
  for (const NamedParameter& one : model.parameters()) {
    if (one.name == name) return one.variable;
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

// Returns the values of a parameter after one training step.
Tensor behind_a_step(const std::string& optimizer, const char* scale, const std::string& name) {
  const ExperimentConfig config =
      config_of(cat("optim: {type: ", optimizer, "}\n"), cat(", offset_lr_scale: ", scale));
  const auto model = model_of(config);
  const auto steps = build_optimizer(config, *model);
  loss_of(*model).backward();
  steps->step(0.125);
  return parameter(*model, name).value();
}

// The weights of the offset branch start at 0. So after one step each weight equals the learning
// rate times the step's direction, rounded once. The test compares the rates 1 and 0.25; their
// ratio of 1/4 is exact in f32.
TEST(DeformConfig, TheBranchLearnsAtItsOwnRate) {
  for (const char* optimizer : {"sgd", "adam"}) {
    SCOPED_TRACE(optimizer);
    const std::string branch = "d.branch.bias";
    const Tensor full = behind_a_step(optimizer, "1", branch);
    const Tensor quarter = behind_a_step(optimizer, "0.25", branch);
    EXPECT_FALSE(near(full, Tensor::zeros(full.shape()), 0, 0));
    EXPECT_TRUE(near(quarter, scale(Variable(full), 0.25).value(), 0, 1e-6));
    EXPECT_TRUE(near(behind_a_step(optimizer, "0.25", "d.weight"),
                     behind_a_step(optimizer, "1", "d.weight"), 0, 0));
    EXPECT_TRUE(near(behind_a_step(optimizer, "0", branch), Tensor::zeros(full.shape()), 0, 0));
  }
}

TEST(DeformConfig, AGroupOfTheConfigBeatsTheLayersRate) {
  const auto scales = [](const std::string& groups) {
    const ExperimentConfig config =
        config_of(cat("optim: {weight_decay: 0.5, groups: [", groups, "]}\n"));
    const auto optimizer = build_optimizer(config, *model_of(config));
    std::map<std::string, double> out;
    for (const ParameterGroup& group : optimizer->groups()) {
      EXPECT_EQ(group.weight_decay, 0.5);
      for (const OptimParameter& one : group.parameters) out[one.name] = group.lr_scale;
    }
    return out;
  };
  EXPECT_EQ(scales("").at("d.branch.weight"), 0.1);
  EXPECT_EQ(scales("").at("d.weight"), 1.0);
  const auto given = scales("{match: 'd.branch.weight', lr_scale: 3}");
  EXPECT_EQ(given.at("d.branch.weight"), 3.0);
  EXPECT_EQ(given.at("d.branch.bias"), 0.1);
}

TEST(DeformConfig, AQuantiserStandsAtTheWeightAndNotAtTheBranch) {
  const ExperimentConfig config = config_of("quant: {w_bits: 4, a_bits: 4}\n");
  const auto model = model_of(config);
  std::vector<std::string> names;
  for (const QuantizedTensor& one : quantized_tensors(*model)) {
    if (one.layer.starts_with("d")) names.push_back(cat(one.layer, ".", one.tensor));
    one.quantizer->begin();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"d.input", "d.weight"}));
  loss_of(*model).backward();  // calibrates
  const Tensor w = parameter(*model, "d.weight").value();
  for (const NamedModule& part : model->modules()) {
    if (part.name != "d") continue;
    EXPECT_FALSE(near(part.module->used_weight().value(), w, 0, 0));
  }
}

TEST(DeformConfig, AMaskStandsAtTheWeightAndNotAtTheBranch) {
  const ExperimentConfig config =
      config_of("sparsity: {method: magnitude, target: 0.5, schedule: one_shot}\n");
  const auto model = model_of(config);
  const PrunableNetwork network = prunable_network(*model, {1, 2, 8, 8});
  std::vector<std::string> names;
  for (const PrunableLayer& one : network.layers) names.push_back(one.name);
  EXPECT_EQ(names, (std::vector<std::string>{"c", "d", "f"}));
  EXPECT_EQ(network.no_sequence_reason, "'branch' of 'd' (deform_conv2d) reads the same channels");
  const ExperimentConfig filters = config_of("sparsity: {method: filter, target: 0.5}\n");
  const auto other = model_of(filters);
  EXPECT_ERROR(ErrorKind::kConfig, "'branch' of 'd' (deform_conv2d) reads the same channels",
               build_pruner(filters, *other, nullptr, kSample, 10));
}

TEST(DeformConfig, ItsTableCountsEachParameterOnce) {
  const auto model = model_of(config_of(""));
  const LayerTable table = layer_table(*model, {3, 2, 8, 8}, Device{}, /*plans=*/true);
  std::istringstream lines(table.csv);
  std::int64_t sum = 0;
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream words(line);
    for (std::string word; std::getline(words, word, ',');) cells.push_back(word);
    if (cells[0] == "layer") continue;
    sum += std::stoll(cells.at(3));
    all += cat(cells[0], " ", cells[5].empty() ? "-" : cells[5], "\n");
  }
  EXPECT_EQ(sum, model->parameter_count());
  EXPECT_NE(all.find("d.branch "), std::string::npos) << all;
  EXPECT_NE(all.find("\nd fused\n"), std::string::npos) << all;
}

// Trains a network of one deformable convolution on images with one bright column.
TrainingSetup deformable_setup(const char* layout) {
  TrainingSetup setup = small_setup(7);
  const ExperimentConfig config = parse_config_text(
      cat("data: {set: synthetic_digits}\nconv: {layout: ", layout,
          "}\nlayers:\n"
          "  - {type: deform_conv2d, name: d, out_channels: 4, kernel_size: 3, padding: 1}\n"
          "  - {type: flatten, name: flat}\n  - {type: linear, name: f, out_features: 4}\n"),
      "deform.yaml");
  setup.model = build_model(config, {1, 4, 4}, kClasses);
  setup.optimizer = build_optimizer(config, *setup.model);
  return setup;
}

std::vector<float> trained(RunFolder& folder, TrainingSetup setup, bool resume, int code) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  EXPECT_EQ(trainer.run(), code);
  return weights_of(*setup.model);
}

TEST(DeformConfig, ARunThatGoesOnHasTheSameBits) {
  for (const char* layout : {"nchw", "nchw16c"}) {
    const TemporaryFolder root;
    RunFolder whole = RunFolder::create(root.path(), "whole", 7);
    const std::vector<float> expected = trained(whole, deformable_setup(layout), false, 0);
    RunFolder parts = RunFolder::create(root.path(), "parts", 7);
    TrainingSetup stopped = deformable_setup(layout);
    stopped.learning_rate = [](const SchedulePoint& point) {
      if (point.step == 17) std::raise(SIGTERM);
      return 0.05;
    };
    trained(parts, std::move(stopped), false, 143);
    EXPECT_EQ(trained(parts, deformable_setup(layout), true, 0), expected) << layout;
  }
}

}  // namespace
}  // namespace convscope::testing
