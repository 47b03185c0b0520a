// SPDX-License-Identifier: Apache-2.0
// sparse_config_test.cpp: tests configs of networks with sparse convolutions: accepted and refused
// layers, the layer table, quantisers and masks, training, resuming and evaluation.
#include <csignal>

#include "datasets/loader.h"
#include "experiments/config/build.h"
#include "experiments/run_folder/layer_table.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/losses/cross_entropy.h"
#include "quant/quantize_network.h"
#include "sparsity/prunable_network.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

// Three sparse layers on the ink of small digits.
std::string text_of_config(const std::string& more = "", const std::string& layers = "",
                           const std::string& c1_algorithms = "") {
  return cat(
      "name: sparse\ndata: {set: digit_points, train_size: 160, test_size: 40, "
      "image_size: 12, batch_size: 16}\nlayers:\n"
      "  - {type: sparse_points, name: points}\n"
      "  - {type: submanifold_conv, name: c1, out_channels: 8, kernel_size: 3",
      c1_algorithms,
      "}\n  - {type: sparse_batch_norm, name: n1}\n  - {type: relu, name: r1}\n"
      "  - {type: dropout, name: d1, p: 0.1}\n"
      "  - {type: sparse_residual, name: r2, out_channels: 8, stride: 2}\n",
      layers.empty() ? "  - {type: sparse_global_pool, name: pool}\n"
                       "  - {type: linear, name: f3, out_features: 10}\n"
                     : layers,
      "optim: {type: adam, lr: 0.01}\ntrain: {epochs: 2}\n", more);
}

ExperimentConfig config_of(const std::string& more = "", const std::string& layers = "",
                           const std::string& c1_algorithms = "") {
  return parse_config_text(text_of_config(more, layers, c1_algorithms), "sparse.yaml");
}

std::shared_ptr<Module> model_of(const ExperimentConfig& config) {
  const SampleInfo sample = sample_info(config);
  return build_model(config, sample.shape, sample.classes);
}

Batch batch_of(const ExperimentConfig& config) {
  const Dataset data = dataset_types().get(config.data.set).load(config.data.options).train;
  Loader loader(data, {.batch_size = 16, .shuffle = false, .prefetch = false});
  loader.start_epoch(0);
  Batch out;
  loader.next(out);
  return {out.x.clone(), out.labels.clone(), 0};
}

TEST(SparseConfig, TheGridIsThatOfTheDataSet) {
  const auto model = model_of(config_of());
  EXPECT_EQ(model->output_shape({3, 144, 3}), (Shape{3, 10}));
  EXPECT_ERROR(
      ErrorKind::kConfig, "expected 'layers' that begin with 'sparse_points'",
      model_of(parse_config_text("data: {set: digit_points}\nmodel: {type: lenet5}\n", "a.yaml")));
  EXPECT_ERROR(ErrorKind::kConfig, "put 'sparse_points' before it",
               model_of(parse_config_text("data: {set: digit_points}\nlayers:\n  - {type: "
                                          "submanifold_conv, out_channels: 2, kernel_size: 3}\n",
                                          "a.yaml")));
  EXPECT_ERROR(ErrorKind::kConfig, "put 'to_dense' before it",
               model_of(config_of("", "  - {type: flatten}\n")));
}

TEST(SparseConfig, MistakesInKeysAreFoundWhereTheyStand) {
  EXPECT_ERROR(
      ErrorKind::kConfig, "did you mean 'stride'?",
      config_of("", "  - {type: sparse_conv, out_channels: 2, kernel_size: 3, strid: 2}\n"));
  EXPECT_ERROR(
      ErrorKind::kConfig, "sparse.yaml:10:58",
      config_of("", "  - {type: sparse_conv, out_channels: 2, kernel_size: 3, strid: 2}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "did you mean 'sparse_max_pool'?",
               config_of("", "  - {type: sparse_maxpool, kernel_size: 2}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "threshold",
               parse_config_text("data: {set: digit_points, threshold: 300}\n", "a.yaml"));
}

TEST(SparseConfig, WhatRunsInPlannedStepsAloneIsRefused) {
  EXPECT_ERROR(ErrorKind::kConfig, "sites change from batch to batch, got int8",
               model_of(config_of("quant: {w_bits: 8, a_bits: 8, execute: int8_always}\n")));
  EXPECT_ERROR(ErrorKind::kConfig, "whose algorithm is a separate key",
               model_of(config_of("conv: {per_layer: {c1: direct}}\n")));
}

TEST(SparseConfig, ItsTableHasTheShapesAndKernels) {
  const auto model = model_of(config_of("", "", ", algorithm: native, backward_weight: reference"));
  const LayerTable table = layer_table(*model, {16, 144, 3}, Device{}, /*plans=*/true);
  EXPECT_NE(table.csv.find("\nc1,submanifold_conv,16x8x12x12,80,3x3,native,-,reference,"
                           "dynamic,"),
            std::string::npos)
      << table.csv;
  EXPECT_NE(table.csv.find("\nr2.conv1,sparse_conv,16x8x6x6,576,3x3,"), std::string::npos)
      << table.csv;
  EXPECT_EQ(table.kernel_sizes, "3x3/1x1");
}

TEST(SparseConfig, NamedAlgorithmsRunInTheirDirections) {
  const ExperimentConfig config =
      config_of("", "", ", algorithm: native, backward_weight: reference");
  const auto model = model_of(config);
  const Batch batch = batch_of(config);
  KernelCounter counter;
  softmax_cross_entropy(model->forward(Variable(batch.x)), batch.labels).backward();
  std::set<std::string> c1_algorithms;
  for (const auto& [run, times] : counter.runs()) {
    EXPECT_EQ(times, 1) << run.problem;
    if (run.problem.ends_with(",c=1,k=8"))
      c1_algorithms.insert(cat(run.kernel, " ", run.direction));
  }
  EXPECT_EQ(c1_algorithms, (std::set<std::string>{"native forward", "reference backward_weight"}));
}

TEST(SparseConfig, ExplainSaysWhoseSitesTheseAreAndWhyNothingIsPlanned) {
  const TemporaryFolder folder;
  std::ofstream(folder / "sparse.yaml") << text_of_config();
  const Called answer = call_program("explain " + (folder / "sparse.yaml"));
  ASSERT_EQ(answer.code, 0) << answer.err;
  for (const char* part :
       {"c1                 submanifold 3x3 p1x1 on 12x12, ", " sites, 1 -> 8", "assumed sample",
        "training: dynamic graph, because 'points': its sites"}) {
    EXPECT_NE(answer.out.find(part), std::string::npos) << answer.out;
  }
}

TEST(SparseConfig, AQuantiserAndAMaskStandAtTheWeights) {
  const ExperimentConfig quantised = config_of("quant: {w_bits: 4, a_bits: 8}\n");
  const auto model = model_of(quantised);
  std::set<std::string> names;
  for (const QuantizedTensor& one : quantized_tensors(*model)) {
    names.insert(cat(one.layer, ".", one.tensor));
    one.quantizer->begin();
  }
  EXPECT_TRUE(names.contains("c1.weight"));
  EXPECT_TRUE(names.contains("r2.conv1.weight"));
  const Batch batch = batch_of(quantised);
  const Variable loss = softmax_cross_entropy(model->forward(Variable(batch.x)), batch.labels);
  loss.backward();
  EXPECT_TRUE(std::isfinite(loss.value().item()));

  const ExperimentConfig masked =
      config_of("sparsity: {method: magnitude, target: 0.5, schedule: one_shot}\n");
  const auto other = model_of(masked);
  std::set<std::string> layers;
  for (const PrunableLayer& one : prunable_network(*other, {1, 144, 3}).layers) {
    layers.insert(one.name);
  }
  EXPECT_TRUE(layers.contains("c1"));
  EXPECT_TRUE(layers.contains("r2.conv2"));
}

std::vector<float> trained(RunFolder& folder, TrainingSetup setup, bool resume, int code) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  EXPECT_EQ(trainer.run(), code);
  return weights_of(*setup.model);
}

TEST(SparseConfig, ARunThatGoesOnHasTheSameBits) {
  const ExperimentConfig config = config_of("", "");
  const TemporaryFolder root;
  RunFolder whole = RunFolder::create(root.path(), "whole", 1);
  TrainingSetup setup = setup_training(config);
  EXPECT_EQ(setup.train->batches_per_epoch(), 10);
  const std::vector<float> expected = trained(whole, std::move(setup), false, 0);
  for (const std::int64_t step : {3, 10}) {
    RunFolder parts = RunFolder::create(root.path(), cat("parts", step), 1);
    TrainingSetup stopped = setup_training(config);
    stopped.learning_rate = [step](const SchedulePoint& point) {
      if (point.step == step) std::raise(SIGTERM);
      return 0.01;
    };
    TrainingSetup constant = setup_training(config);
    trained(parts, std::move(stopped), false, 143);
    EXPECT_EQ(trained(parts, std::move(constant), true, 0), expected) << step;
  }
}

TEST(SparseConfig, ItLearnsAndItsMetricsAreThoseOfOtherRuns) {
  ExperimentConfig config = config_of("", "");
  config.train.epochs = 8;
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "learns", 1);
  TrainingSetup setup = setup_training(config);
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  EXPECT_EQ(trainer.run(), 0);
  EXPECT_GT(trainer.state.test.accuracy, 25);
  EXPECT_EQ(trainer.state.test.images, 40);
  const std::string layers = text_of(folder.file("layers.csv"));
  EXPECT_NE(layers.find("\nc1,submanifold_conv,16x8x12x12,"), std::string::npos) << layers;
  EXPECT_NE(layers.find(",dynamic,"), std::string::npos) << layers;
}

TEST(SparseConfig, TheProgramTrainsEvaluatesAndGoesOn) {
  const TemporaryFolder folder;
  std::ofstream(folder / "sparse.yaml") << text_of_config();
  const std::string run = cat("run ", folder / "sparse.yaml", " -o ", folder / "runs");
  Called answer = call_program(run + " --epochs-limit 1");
  ASSERT_EQ(answer.code, 0) << answer.err;
  answer = call_program(run + " --resume auto");
  ASSERT_EQ(answer.code, 0) << answer.err;
  answer = call_program(cat("eval ", folder / "runs", "/sparse/latest"));
  EXPECT_EQ(answer.code, 0) << answer.err;
  answer = call_program(cat("report ", folder / "runs"));
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_NE(answer.out.find("sparse"), std::string::npos) << answer.out;
}

}  // namespace
}  // namespace convscope::testing
