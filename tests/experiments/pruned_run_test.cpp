// SPDX-License-Identifier: Apache-2.0
// pruned_run_test.cpp: tests runs with the config block `sparsity:`: the files in the run folder,
// resuming after an interruption, and refused settings.
#include <csignal>

#include "experiments/config/build.h"
#include "experiments/trainer/checkpoint.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

std::string yaml_of(const std::string& sparsity) {
  return cat(
      "name: pruned\n"
      "data: {set: synthetic_digits, train_size: 320, test_size: 50, batch_size: 16}\n"
      "model: {type: lenet5}\n"
      "optim: {type: sgd, lr: 0.02, momentum: 0.9, weight_decay: 0.001}\n"
      "train: {epochs: 2}\n"
      "threads: 1\n"
      "sparsity: {",
      sparsity, "}\n");
}

TrainingSetup setup_of(const std::string& sparsity) {
  return setup_training(parse_config_text(yaml_of(sparsity), "pruned.yaml"));
}

struct Ended {
  std::vector<float> weights;
  std::string csv;
};

Ended run(TrainingSetup setup, RunFolder& folder, bool resume, int wanted_code) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  EXPECT_EQ(trainer.run(), wanted_code);
  return {weights_of(*setup.model), text_of(folder.file("sparsity.csv"))};
}

TEST(PrunedRun, interrupted_at_any_step_ends_with_the_same_bits_and_the_same_sparsity_csv) {
  for (const char* sparsity : {"method: magnitude, target: 0.8, every_steps: 3",
                               "method: filter, target: 0.5, every_steps: 4",
                               "method: rigl, target: 0.8, start: 0, every_steps: 5"}) {
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "whole", 1);
    const Ended whole = run(setup_of(sparsity), folder, false, 0);
    for (const std::int64_t step : {0, 5, 13, 29, 35}) {  // 40 steps in total, 20 per epoch
      RunFolder parts = RunFolder::create(root.path(), "parts", 1);
      TrainingSetup setup = setup_of(sparsity);
      setup.learning_rate = [step, rate = setup.learning_rate](const SchedulePoint& point) {
        if (point.step == step) std::raise(SIGTERM);
        return rate(point);
      };
      run(std::move(setup), parts, false, 143);
      const Ended rest = run(setup_of(sparsity), parts, true, 0);
      EXPECT_EQ(rest.weights, whole.weights) << sparsity << ", step " << step;
      EXPECT_EQ(rest.csv, whole.csv) << sparsity << ", step " << step;
    }
  }
}

TEST(PrunedRun, that_crashed_drops_the_rows_behind_its_checkpoint) {
  const char* sparsity = "method: magnitude, target: 0.8, every_steps: 3";
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "whole", 1);
  const Ended whole = run(setup_of(sparsity), folder, false, 0);
  RunFolder parts = RunFolder::create(root.path(), "parts", 1);
  TrainingSetup setup = setup_of(sparsity);
  setup.learning_rate = [rate = setup.learning_rate](const SchedulePoint& point) {
    if (point.step == 28) fail(ErrorKind::kRun, "test", "a crash");  // the checkpoint is at 20
    return rate(point);
  };
  EXPECT_THROW(run(std::move(setup), parts, false, 0), Error);
  const Ended rest = run(setup_of(sparsity), parts, true, 0);
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(rest.csv, whole.csv);
}

TEST(PrunedRun, writes_a_row_for_each_layer_at_each_update_and_says_what_ran) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "pruned", 1);
  TrainingSetup setup =
      setup_of("method: magnitude, target: 0.9, schedule: one_shot, exclude: [c1]");
  EXPECT_EQ(setup.facts.execution, "masked dense");
  EXPECT_EQ(setup.facts.kernel_size, "5") << "layers with masks are still layers";
  const std::string csv = run(std::move(setup), folder, false, 0).csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 6) << csv;
  EXPECT_NE(csv.find("6,0.9,c1,0,150,0,1,6,6,"), std::string::npos) << csv;  // 15 % of 40 steps
  EXPECT_NE(csv.find("6,0.9,f4,1,10080,9072,0.1,84,"), std::string::npos) << csv;
  EXPECT_NE(text_of(folder.file("summary.json")).find("\"execution\": \"masked dense\""),
            std::string::npos);
}

TEST(PrunedRun, best_weights_are_taken_from_the_time_when_the_masks_are_final) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "pruned", 1);
  TrainingSetup setup = setup_of("method: magnitude, target: 0.9, end: 0.9");
  const std::shared_ptr<Module> model = setup.model;
  run(std::move(setup), folder, false, 0);
  load_checkpoint(folder.file("ckpt/best.safetensors"), *model, nullptr);
  double kept = 0, all = 0;
  for (const NamedTensor& buffer : model->buffers()) {
    for (std::int64_t i = 0; i < buffer.tensor.numel(); ++i) kept += buffer.tensor.at(i);
    all += static_cast<double>(buffer.tensor.numel());
  }
  EXPECT_NEAR(kept / all, 0.1, 1e-3);
}

TEST(PrunedRun, begins_with_the_weights_of_a_dense_run_or_of_another_pruned_one) {
  const TemporaryFolder root;
  for (const char* first : {"method: none", "method: filter, target: 0.5"}) {
    RunFolder folder = RunFolder::create(root.path(), "first", 1);
    const Ended trained = run(setup_of(first), folder, false, 0);
    RunFolder second = RunFolder::create(root.path(), "second", 1);
    TrainingSetup setup =
        setup_of(cat("method: magnitude, target: 0.8, end: 1, start_from: ", folder.path()));
    const std::shared_ptr<Module> model = setup.model;
    EXPECT_EQ(setup.start_from, folder.path());
    load_start_weights(setup.start_from, *setup.model);
    setup.learning_rate = [](const SchedulePoint&) { return 0.0; };
    const Ended rest = run(std::move(setup), second, false, 0);
    EXPECT_EQ(rest.weights, trained.weights) << "nothing moves at rate 0, and nothing is lost";
    double kept = 0, all = 0;
    for (const NamedTensor& buffer : model->buffers()) {
      for (std::int64_t i = 0; i < buffer.tensor.numel(); ++i) kept += buffer.tensor.at(i);
      all += static_cast<double>(buffer.tensor.numel());
    }
    EXPECT_NEAR(kept / all, 0.2, 1e-3) << "masks are made anew";
  }
}

TEST(SparsityBlock, is_written_and_read_back_the_same) {
  const ExperimentConfig config = parse_config_text(
      yaml_of("method: block, block: [4, 1], target: 0.75, exclude: [c1, f5], start: 0.1"),
      "a.yaml");
  const std::string yaml = to_yaml(config);
  EXPECT_NE(yaml.find("block: [4, 1]"), std::string::npos) << yaml;
  EXPECT_EQ(to_yaml(parse_config_text(yaml, "b.yaml")), yaml);
  const std::string without = to_yaml(
      parse_config_text("data: {set: synthetic_digits}\nmodel: {type: lenet5}\n", "c.yaml"));
  EXPECT_EQ(without.find("sparsity"), std::string::npos);
}

TEST(SparsityBlock, mistakes_are_config_errors_with_their_place) {
  const auto parse = [](const std::string& sparsity) {
    parse_config_text(yaml_of(sparsity), "pruned.yaml");
  };
  EXPECT_ERROR(ErrorKind::kConfig, "sparsity.target", parse("method: magnitude, target: 1.5"));
  EXPECT_ERROR(ErrorKind::kConfig, "expected a method", parse("target: 0.9"));
  EXPECT_ERROR(ErrorKind::kConfig, "did you mean 'target'?",
               parse("method: magnitude, targt: 0.5"));
  EXPECT_ERROR(ErrorKind::kConfig, "sparsity.method", parse("method: magnitute"));
  EXPECT_ERROR(ErrorKind::kConfig, "[rows, columns]", parse("method: block, block: [16]"));
  EXPECT_ERROR(ErrorKind::kConfig, "pruned.yaml:7", parse("method: n_m, n: 4, m: 4"));
  EXPECT_ERROR(ErrorKind::kConfig, "did you mean 'c1'?",
               setup_of("method: magnitude, exclude: [c11]"));
  EXPECT_ERROR(ErrorKind::kConfig, "layer 'f5' [10,84]",
               setup_of("method: block, block: [16, 128], exclude: [c1, c2, f3, f4]"));
  EXPECT_ERROR(ErrorKind::kConfig, "layer 'c1' without any filter",
               setup_of("method: filter, target: 0.95"));
  EXPECT_ERROR(ErrorKind::kConfig, "without any weight", setup_of("method: magnitude, target: 1"));
}

TEST(SparsityBlock, widths_of_lenet5_are_four) {
  EXPECT_ERROR(ErrorKind::kConfig, "expected four widths",
               setup_training(parse_config_text("data: {set: synthetic_digits}\n"
                                                "model: {type: lenet5, widths: [6, 16]}\n",
                                                "w.yaml")));
}

}  // namespace
}  // namespace convscope::testing
