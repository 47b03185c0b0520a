// SPDX-License-Identifier: Apache-2.0
// quantised_run_test.cpp: tests runs with the config block `quant:`: when quantisation begins, the
// files in the run folder, resuming after an interruption.
#include <csignal>

#include "experiments/config/build.h"
#include "experiments/trainer/checkpoint.h"
#include "sparsity/compact.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

std::string yaml_of(const std::string& quant, const std::string& more = "") {
  return cat(
      "name: quantised\n"
      "data: {set: synthetic_digits, train_size: 160, test_size: 50, batch_size: 8}\n"
      "model: {type: lenet5}\n"
      "optim: {type: adam, lr: 0.003}\n"
      "train: {epochs: 2}\n"
      "threads: 1\n"
      "quant: {",
      quant, "}\n", more);
}

TrainingSetup setup_of(const std::string& quant, const std::string& more = "") {
  return setup_training(parse_config_text(yaml_of(quant, more), "quantised.yaml"));
}

struct Ended {
  std::vector<float> weights;
  std::string csv;
  RunSummary summary;
};

Ended run(TrainingSetup setup, RunFolder& folder, bool resume, int wanted_code) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  EXPECT_EQ(trainer.run(), wanted_code);
  return {weights_of(*setup.model), text_of(folder.file("quant.csv")), trainer.summary()};
}

// Returns the parameters except those of quantisers.
std::vector<float> weights_alone(const Module& model) {
  std::vector<float> out;
  for (const NamedParameter& parameter : model.parameters()) {
    if (belongs_to_quantizer(parameter.name)) continue;
    const float* values = parameter.variable.value().data<float>();
    out.insert(out.end(), values, values + parameter.variable.value().numel());
  }
  return out;
}

TEST(QuantisedRun, interrupted_at_any_step_ends_with_the_same_bits_and_the_same_quant_csv) {
  // The run has 40 steps, 20 per epoch. The cases begin to quantise within an epoch, at the end of
  // an epoch, and at the first step.
  for (const char* quant : {"w_bits: 4, a_bits: 4, begin: 0.35, calibration_batches: 3",
                            "w_bits: 2, a_bits: 2, begin: 0.5, per_channel: true, step: floored",
                            "method: minmax, begin: 0.3, calibration_batches: 4"}) {
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "whole", 1);
    const Ended whole = run(setup_of(quant), folder, false, 0);
    for (const std::int64_t step : {14, 15, 31}) {
      RunFolder parts = RunFolder::create(root.path(), "parts", 1);
      TrainingSetup setup = setup_of(quant);
      setup.learning_rate = [step, rate = setup.learning_rate](const SchedulePoint& point) {
        if (point.step == step) std::raise(SIGTERM);
        return rate(point);
      };
      run(std::move(setup), parts, false, 143);
      const Ended rest = run(setup_of(quant), parts, true, 0);
      EXPECT_EQ(rest.weights, whole.weights) << quant << ", step " << step;
      EXPECT_EQ(rest.csv, whole.csv) << quant << ", step " << step;
      EXPECT_EQ(rest.summary.acc, whole.summary.acc);
    }
  }
}

TEST(QuantisedRun, with_rounded_sums_goes_on_with_the_same_bits) {
  const auto setup_of_blocks = [] {
    return setup_training(parse_config_text(
        "name: quantised\n"
        "data: {set: synthetic_digits, train_size: 48, test_size: 16, batch_size: 8}\n"
        "model: {type: resnet18, stem: cifar, widths: [2, 3, 4, 4]}\n"
        "optim: {type: adam, lr: 0.003}\n"
        "train: {epochs: 2}\n"
        "threads: 1\n"
        "quant: {w_bits: 4, a_bits: 4, residual_bits: 6, begin: 0.3, calibration_batches: 2}\n",
        "quantised.yaml"));
  };
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "whole", 1);
  const Ended whole = run(setup_of_blocks(), folder, false, 0);
  for (const std::int64_t step : {4, 5, 8}) {  // 12 steps; begins with step 4
    RunFolder parts = RunFolder::create(root.path(), "parts", 1);
    TrainingSetup setup = setup_of_blocks();
    setup.learning_rate = [step, rate = setup.learning_rate](const SchedulePoint& point) {
      if (point.step == step) std::raise(SIGTERM);
      return rate(point);
    };
    run(std::move(setup), parts, false, 143);
    const Ended rest = run(setup_of_blocks(), parts, true, 0);
    EXPECT_EQ(rest.weights, whole.weights) << "step " << step;
    EXPECT_EQ(rest.csv, whole.csv) << "step " << step;
  }
  EXPECT_NE(whole.csv.find(",layer2.0,input,6,0,"), std::string::npos) << whole.csv;
  EXPECT_NE(whole.csv.find(",layer2.0,shortcut,6,1,"), std::string::npos) << whole.csv;
}

TEST(QuantisedRun, that_crashed_drops_the_rows_behind_its_checkpoint) {
  const char* quant = "w_bits: 4, a_bits: 4, begin: 0.6";
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "whole", 1);
  const Ended whole = run(setup_of(quant), folder, false, 0);
  RunFolder parts = RunFolder::create(root.path(), "parts", 1);
  TrainingSetup setup = setup_of(quant);
  setup.learning_rate = [rate = setup.learning_rate](const SchedulePoint& point) {
    if (point.step == 28) fail(ErrorKind::kRun, "test", "a crash");  // the checkpoint is at 20
    return rate(point);
  };
  EXPECT_THROW(run(std::move(setup), parts, false, 0), Error);
  EXPECT_NE(text_of(parts.file("quant.csv")).find("\n25,"), std::string::npos);
  const Ended rest = run(setup_of(quant), parts, true, 0);
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(rest.csv, whole.csv);
}

TEST(QuantisedRun, is_the_f32_run_until_it_begins) {
  const TemporaryFolder root;
  RunFolder dense_folder = RunFolder::create(root.path(), "dense", 1);
  std::string dense_yaml = yaml_of("");
  dense_yaml.resize(dense_yaml.find("quant:"));
  TrainingSetup dense = setup_training(parse_config_text(dense_yaml, "dense.yaml"));
  const std::shared_ptr<Module> dense_model = dense.model;
  dense.epochs_now = 1;
  const Ended f32 = run(std::move(dense), dense_folder, false, 0);

  RunFolder folder = RunFolder::create(root.path(), "quantised", 1);
  TrainingSetup setup = setup_of("w_bits: 2, a_bits: 2, begin: 0.5");  // with step 20, of epoch 2
  EXPECT_EQ(setup.facts.execution, "f32 dense");
  const std::shared_ptr<Module> model = setup.model;
  setup.epochs_now = 1;
  const Ended half = run(std::move(setup), folder, false, 0);
  EXPECT_EQ(weights_alone(*model), weights_alone(*dense_model));
  EXPECT_EQ(half.summary.test_loss, f32.summary.test_loss) << "evaluated in f32";
  EXPECT_EQ(half.summary.execution, "f32 dense");
  EXPECT_EQ(half.summary.timed_steps, 15);
  EXPECT_EQ(half.summary.best_acc, std::nullopt) << "an f32 network is no candidate";
  EXPECT_FALSE(std::filesystem::exists(folder.file("ckpt/best.safetensors")));
  EXPECT_EQ(std::count(half.csv.begin(), half.csv.end(), '\n'), 1) << half.csv;
  // A checkpoint from before the beginning is evaluated without quantisation.
  load_checkpoint(folder.file("ckpt/last.safetensors"), *model, nullptr);
  for (const QuantizedTensor& tensor : quantized_tensors(*model)) {
    EXPECT_FALSE(tensor.quantizer->is_active());
  }

  const Ended whole = run(setup_of("w_bits: 2, a_bits: 2, begin: 0.5"), folder, true, 0);
  EXPECT_EQ(whole.summary.execution, "fake-quant f32");
  EXPECT_EQ(whole.summary.timed_steps, 15) << "20 quantised steps, 5 of them warm-up";
  EXPECT_EQ(whole.summary.best_epoch, 2);
  TrainingSetup again = setup_of("w_bits: 2, a_bits: 2, begin: 0.5");
  load_checkpoint(folder.file("ckpt/best.safetensors"), *again.model, nullptr);
  EXPECT_EQ(evaluation_of(*again.model, *again.test).loss, *whole.summary.test_loss);
}

TEST(QuantisedRun, writes_the_steps_when_it_begins_and_after_each_epoch) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "quantised", 1);
  TrainingSetup setup = setup_of("w_bits: 4, a_bits: 3, begin: 0.3, calibration_batches: 2");
  const std::shared_ptr<Module> model = setup.model;
  const std::string csv = run(std::move(setup), folder, false, 0).csv;
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "step,epoch,layer,tensor,bits,signed,step_size_min,step_size_mean,step_size_max,"
            "saturated_percent");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 3 * 10) << csv;
  for (const char* row :
       {"\n14,1,c1,input,8,1,", "\n20,1,c2,weight,4,1,", "\n40,2,f3,input,3,0,"}) {
    EXPECT_NE(csv.find(row), std::string::npos) << row << "\n" << csv;
  }
}

constexpr const char* kFilters = "sparsity: {method: filter, target: 0.5, every_steps: 3}\n";

TEST(QuantisedAndPrunedRun, interrupted_at_any_step_ends_with_the_same_bits) {
  for (const char* sparsity :
       {"sparsity: {method: magnitude, target: 0.8, every_steps: 3}\n", kFilters,
        "sparsity: {method: filter, target: 0.5, every_steps: 3, end: 0.45, remove: true}\n"}) {
    const char* quant = "w_bits: 3, a_bits: 4, begin: 0.4, init: mean_abs, per_channel: true";
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "whole", 1);
    const Ended whole = run(setup_of(quant, sparsity), folder, false, 0);
    EXPECT_EQ(whole.summary.execution, std::string(sparsity).find("remove") == std::string::npos
                                           ? "fake-quant f32, masked dense"
                                           : "fake-quant f32, compact dense");
    for (const std::int64_t step : {10, 16, 25}) {  // masks from step 6 to 30, quantised from 16
      RunFolder parts = RunFolder::create(root.path(), "parts", 1);
      TrainingSetup setup = setup_of(quant, sparsity);
      EXPECT_EQ(setup.facts.execution, "masked dense");
      setup.learning_rate = [step, rate = setup.learning_rate](const SchedulePoint& point) {
        if (point.step == step) std::raise(SIGTERM);
        return rate(point);
      };
      run(std::move(setup), parts, false, 143);
      const Ended rest = run(setup_of(quant, sparsity), parts, true, 0);
      EXPECT_EQ(rest.weights, whole.weights) << sparsity << step;
      EXPECT_EQ(rest.csv, whole.csv) << sparsity << step;
    }
  }
}

TEST(QuantisedAndPrunedRun, calibrates_on_the_weights_that_the_mask_leaves) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "both", 1);
  TrainingSetup setup =
      setup_of("w_bits: 4, begin: 0.5, init: mean_abs",
               "sparsity: {method: magnitude, target: 0.75, schedule: one_shot, exclude: [c1]}\n");
  setup.learning_rate = [](const SchedulePoint&) { return 0.0; };
  const std::shared_ptr<Module> model = setup.model;
  run(std::move(setup), folder, false, 0);
  for (const QuantizedTensor& tensor : quantized_tensors(*model)) {
    if (tensor.layer != "f3" || !tensor.is_weight) continue;
    Tensor weight, keep;
    for (const NamedParameter& parameter : model->parameters()) {
      if (parameter.name == "f3.weight") weight = parameter.variable.value();
    }
    for (const NamedTensor& buffer : model->buffers()) {
      if (buffer.name == "f3.mask.keep") keep = buffer.tensor;
    }
    double sum = 0, kept = 0;
    for (std::int64_t i = 0; i < weight.numel(); ++i) {
      sum += std::fabs(weight.at(i)) * keep.at(i);
      kept += keep.at(i);
    }
    EXPECT_NEAR(kept / static_cast<double>(weight.numel()), 0.25, 1e-3);
    EXPECT_NEAR(tensor.quantizer->steps().at(0), 2 * sum / kept / std::sqrt(7.0), 1e-6);
  }
}

TEST(QuantisedAndPrunedRun, becomes_a_smaller_quantised_network_with_the_same_outputs) {
  for (const char* quant : {"w_bits: 3, a_bits: 4, begin: 0.4, per_channel: true",
                            "w_bits: 8, a_bits: 8", "w_bits: 2, a_bits: 2, begin: 0.9"}) {
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "both", 1);
    TrainingSetup setup = setup_of(quant, kFilters);
    const std::shared_ptr<Module> model = setup.model;
    const Pruner& pruner = *setup.pruner;
    const std::vector<Tensor> masks = pruner.masks();
    const PrunableNetwork network = pruner.network();
    run(std::move(setup), folder, false, 0);
    const CompactPlan plan = compact_plan(network, masks);
    std::string yaml = yaml_of(quant);
    const std::string model_text = "{type: lenet5}";
    yaml.replace(yaml.find(model_text), model_text.size(),
                 cat("{type: lenet5, widths: [", plan.kept[0].size(), ", ", plan.kept[1].size(),
                     ", ", plan.kept[2].size(), ", ", plan.kept[3].size(), "]}"));
    EXPECT_EQ(plan.kept[2].size(), 60u);
    const std::shared_ptr<Module> compact =
        build_model(parse_config_text(yaml, "compact.yaml"), {1, 28, 28}, 10);
    copy_compact(*model, network, masks, plan, *compact);
    model->eval();
    compact->eval();
    const Variable x(normal({32, 1, 28, 28}, DType::f32));
    const Tensor want = model->forward(x).value(), got = compact->forward(x).value();
    EXPECT_GT(std::fabs(want.at(3)), 1e-3);
    EXPECT_TRUE(near(got, want, 1e-5, 1e-5)) << quant;
  }
}

TEST(QuantisedRun, that_would_never_begin_is_refused) {
  EXPECT_ERROR(ErrorKind::kConfig,
               "[quant.begin] expected a share that leaves a step to quantise, got 1, which is 40 "
               "of 40 steps",
               setup_of("begin: 1"));
}

}  // namespace
}  // namespace convscope::testing
