// SPDX-License-Identifier: Apache-2.0
// best_epoch_test.cpp: ckpt/best.safetensors belongs to the best epoch.
#include <nlohmann/json.hpp>

#include "experiments/trainer/checkpoint.h"
#include "tests/experiments/csv_rows.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

// Returns the data set with all labels shifted by one. The better a network learns the columns, the
// worse are its results on these images.
Dataset against(Dataset data) {
  std::int32_t* const labels = data.labels.data<std::int32_t>();
  for (std::int64_t i = 0; i < data.size(); ++i) labels[i] = (labels[i] + 1) % kClasses;
  return data;
}

std::unique_ptr<Loader> in_order(Dataset data) {
  return std::make_unique<Loader>(std::move(data),
                                  LoaderOptions{.batch_size = 16, .shuffle = false});
}

constexpr int kEpochs = 5;

// Returns a training that learns until the last epoch and then forgets everything. With
// `with_validation`, only the validation images show this; the test images have shifted labels, so
// their results change in the opposite direction.
TrainingSetup forgetful_setup(bool with_validation) {
  TrainingSetup setup = small_setup(1, 0.1);
  if (with_validation) setup.val = in_order(bright_columns(60, 3));
  Dataset test = bright_columns(50, 2);
  setup.test = in_order(with_validation ? against(std::move(test)) : std::move(test));
  setup.epochs = kEpochs;
  auto* const model = dynamic_cast<TwoLinear*>(setup.model.get());
  const std::int64_t last = (kEpochs - 1) * setup.train->batches_per_epoch();
  model->before_forward = [model, last] {
    if (!model->is_training() || model->step() < last) return;
    for (const NamedParameter& parameter : model->parameters()) parameter.variable.value().zero();
  };
  return setup;
}

struct Ended {
  nlohmann::json summary;
  std::vector<CsvRow> epochs;
  double accuracy_of_best = 0, accuracy_of_last = 0;  // on the deciding images
};

Ended run(TrainingSetup setup) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "best", 1);
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  EXPECT_EQ(trainer.run(), 0);
  Ended out{.summary = nlohmann::json::parse(text_of(folder.file("summary.json"))),
            .epochs = csv_rows(text_of(folder.file("epochs.csv")))};
  Loader& deciding = setup.val ? *setup.val : *setup.test;
  load_checkpoint(folder.file("ckpt/last.safetensors"), *setup.model, setup.optimizer.get());
  out.accuracy_of_last = evaluation_of(*setup.model, deciding).accuracy;
  load_checkpoint(folder.file("ckpt/best.safetensors"), *setup.model, nullptr);
  out.accuracy_of_best = evaluation_of(*setup.model, deciding).accuracy;
  return out;
}

// Returns the first row with the largest number in a column.
std::size_t first_best(const std::vector<CsvRow>& rows, const char* column) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::stod(rows[i].at(column)) > std::stod(rows[best].at(column))) best = i;
  }
  return best;
}

TEST(BestEpoch, IsChosenOnTheValidationImagesWhereThereAreAny) {
  const Ended done = run(forgetful_setup(true));
  ASSERT_EQ(done.epochs.size(), static_cast<std::size_t>(kEpochs));
  const std::size_t best = first_best(done.epochs, "val_acc");
  ASSERT_NE(best, first_best(done.epochs, "test_acc")) << "the two say the same: nothing is tested";
  EXPECT_EQ(done.summary.at("best_epoch").get<std::size_t>(), best + 1);
  EXPECT_EQ(done.summary.at("best_split"), "val");
  EXPECT_NEAR(done.summary.at("best_acc").get<double>(), std::stod(done.epochs[best].at("val_acc")),
              1e-3);
}

TEST(BestEpoch, IsChosenOnTheTestImagesWhereThereIsNoValidation) {
  const Ended done = run(forgetful_setup(false));
  const std::size_t best = first_best(done.epochs, "test_acc");
  EXPECT_EQ(done.summary.at("best_epoch").get<std::size_t>(), best + 1);
  EXPECT_EQ(done.summary.at("best_split"), "test");
}

TEST(BestEpoch, HasItsWeightsInTheBestCheckpoint) {
  for (const bool with_validation : {true, false}) {
    const Ended done = run(forgetful_setup(with_validation));
    EXPECT_LT(done.accuracy_of_last, 50);  // it has forgotten everything
    EXPECT_NEAR(done.accuracy_of_best, done.summary.at("best_acc").get<double>(), 1e-9);
    EXPECT_GT(done.accuracy_of_best, 80);
  }
}

TEST(BestEpoch, TheLastEpochIsAlwaysEvaluated) {
  TrainingSetup setup = forgetful_setup(true);
  setup.eval_every = 2;
  const Ended done = run(std::move(setup));
  const std::vector<bool> evaluated = {false, true, false, true, true};
  for (std::size_t i = 0; i < evaluated.size(); ++i) {
    EXPECT_EQ(!done.epochs[i].at("val_acc").empty(), evaluated[i]) << i;
    EXPECT_EQ(!done.epochs[i].at("test_acc").empty(), evaluated[i]) << i;
  }
  // The checkpoint must contain the weights of the best epoch, not those of the previous epoch.
  EXPECT_NE(done.epochs[4].at("val_loss"), done.epochs[3].at("val_loss"));
}

}  // namespace
}  // namespace convscope::testing
