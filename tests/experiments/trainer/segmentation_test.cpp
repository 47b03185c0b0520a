// SPDX-License-Identifier: Apache-2.0
// segmentation_test.cpp: tests training with a class for each pixel: accuracy and IoU, resuming,
// accumulation, and what is refused.
#include <csignal>

#include "experiments/report/csv_table.h"
#include "experiments/run_folder/run_summary.h"
#include "experiments/trainer/checkpoint.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

constexpr const char* kData =
    "data: {set: synthetic_segmentation, train_size: 48, val_split: 8, test_size: 13, "
    "image_size: 16, batch_size: 8, augment: {crop_padding: 2, mirror: true}}\n";
constexpr const char* kNet = "model: {type: unet, poolings: 1, width: 4}\n";

constexpr const char* kTwoEpochs = "train: {epochs: 2}\nlog: {tensorboard: true}\n";

TrainingSetup segmentation_setup(const std::string& more = kTwoEpochs,
                                 const std::string& net = kNet, double lr = 0.01) {
  return setup_training(parse_config_text(cat("name: pixels\nseed: 3\nthreads: 1\n", kData, net,
                                              "optim: {type: adam, lr: ", lr, "}\n", more),
                                          "pixels.yaml"));
}

struct Trained {
  int code = -1;
  std::vector<float> weights;
  TrainingState state;
  RunSummary summary;
  CsvTable confusion, epochs;
  std::string metrics, events;
};

Trained train(TrainingSetup& setup, RunFolder& folder, bool resume = false) {
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  if (resume) trainer.resume();
  Trained out;
  out.code = trainer.run();
  out.weights = weights_of(*setup.model);
  out.state = trainer.state;
  out.summary = parse_summary(text_of(folder.file("summary.json")));
  out.confusion = parse_csv(text_of(folder.file("confusion.csv")), "confusion.csv", {"true_class"});
  out.epochs = parse_csv(text_of(folder.file("epochs.csv")), "epochs.csv", {"phases"});
  out.metrics = text_of(folder.file("metrics.jsonl"));
  out.events = text_of(folder.file(kTensorboardFile));
  return out;
}

Trained train() {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "pixels", 3);
  TrainingSetup setup = segmentation_setup();
  return train(setup, folder);
}

TEST(Segmentation, AccuracyAndIouFollowFromTheConfusionMatrixOfThePixels) {
  const Trained run = train();
  ASSERT_EQ(run.code, 0);
  const std::size_t classes = run.confusion.rows.size();
  ASSERT_EQ(classes, 5u);
  const auto count = [&](std::size_t row, std::size_t column) {
    return number_in(run.confusion.rows[row][column + 1]);
  };
  double pixels = 0, right = 0, sum = 0;
  for (std::size_t k = 0; k < classes; ++k) {
    double row = 0, column = 0;
    for (std::size_t other = 0; other < classes; ++other) {
      row += count(k, other);
      column += count(other, k);
    }
    pixels += row;
    right += count(k, k);
    const double iou = 100 * count(k, k) / (row + column - count(k, k));
    sum += iou;
    EXPECT_EQ(run.summary.test_class_iou[k].first, run.confusion.rows[k][0]);
    EXPECT_NEAR(*run.summary.test_class_iou[k].second, iou, 1e-9);
  }
  EXPECT_EQ(pixels, 13.0 * 16 * 16);
  EXPECT_NEAR(*run.summary.acc, 100 * right / pixels, 1e-9);
  EXPECT_NEAR(*run.summary.test_iou, sum / static_cast<double>(classes), 1e-9);
  EXPECT_NEAR(run.epochs.number(1, "test_iou"), *run.summary.test_iou, 1e-4);
  for (const char* split : {"val", "test"}) {
    EXPECT_NE(run.events.find(cat("iou/", split)), std::string::npos) << split;
    const std::size_t row = run.metrics.find(cat("\"split\":\"", split));
    const std::string line = run.metrics.substr(row, run.metrics.find('\n', row) - row);
    EXPECT_NE(line.find(",\"iou\":"), std::string::npos) << line;
  }
  EXPECT_EQ(run.summary.test_top5, std::nullopt) << "there are only five classes";
  // Most pixels are background, so the training accuracy is a share of the pixels, too.
  EXPECT_GT(run.summary.train_acc, 40);
  EXPECT_LT(run.summary.train_acc, 100);
}

TEST(Segmentation, AResumedRunHasTheSameBitsAndResults) {
  const Trained whole = train();
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "parts", 3);
  TrainingSetup first = segmentation_setup();
  const auto rate = first.learning_rate;
  first.learning_rate = [rate](const SchedulePoint& point) {
    if (point.step == 8) std::raise(SIGTERM);  // in the second epoch
    return rate(point);
  };
  ASSERT_EQ(train(first, folder).code, 143);
  TrainingSetup second = segmentation_setup();
  const Trained rest = train(second, folder, true);
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(rest.summary.test_class_iou, whole.summary.test_class_iou);
  EXPECT_EQ(rest.summary.train_acc, whole.summary.train_acc);
  EXPECT_EQ(rest.confusion.rows, whole.confusion.rows);
  // A run that has ended keeps its results when it is resumed, although it evaluates nothing.
  TrainingSetup third = segmentation_setup();
  EXPECT_EQ(train(third, folder, true).summary.test_class_iou, whole.summary.test_class_iou);
}

// The weights hardly change, and there is no batch norm, so all ways of computing a batch predict
// the same pixels.
TEST(Segmentation, DynamicStepsAndMicroBatchesCountTheSamePixels) {
  const auto accuracy_of = [](const char* keys) {
    const TemporaryFolder root;
    RunFolder folder = RunFolder::create(root.path(), "pixels", 3);
    TrainingSetup setup = segmentation_setup(
        cat("train: {epochs: 1", keys, "}\n"),
        "layers: [{type: conv2d, out_channels: 5, kernel_size: 3, padding: 1}]\n", 1e-9);
    return train(setup, folder).summary.train_acc;
  };
  const double planned = accuracy_of("");
  EXPECT_GT(planned, 0);
  EXPECT_LT(planned, 100);
  EXPECT_EQ(accuracy_of(", plan: false"), planned);
  EXPECT_EQ(accuracy_of(", accumulate: 4"), planned);
}

TEST(Segmentation, TheIouGateFailsARunBelowIt) {
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "gate", 3);
  TrainingSetup setup = segmentation_setup("train: {epochs: 1}\nexpect: {test_iou_min: 99.5}\n");
  EXPECT_ERROR(ErrorKind::kRun, "expected a mean test IoU of at least 99.5 % after epoch 1",
               train(setup, folder));
}

TEST(Segmentation, RefusesNetworksWithoutAClassForEachPixel) {
  EXPECT_ERROR(ErrorKind::kConfig,
               "expected an output of shape [1,5,16,16] because the data set "
               "'synthetic_segmentation' has a class for each pixel, got [1,5]",
               segmentation_setup("train: {epochs: 1}\n", "model: {type: lenet5}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "got [1,5,8,8], another number of pixels",
               segmentation_setup("train: {epochs: 1}\n",
                                  "layers: [{type: conv2d, out_channels: 5, kernel_size: 3, "
                                  "stride: 2, padding: 1}]\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "because the data set has 5 classes, got [1,4,16,16]",
               segmentation_setup("train: {epochs: 1}\n",
                                  "layers: [{type: conv2d, out_channels: 4, kernel_size: 1}]\n"));
  const std::string digits = "data: {set: synthetic_digits, train_size: 64, image_size: 16}\n";
  EXPECT_ERROR(ErrorKind::kConfig,
               "because the data set 'synthetic_digits' has a class for each image, got "
               "[1,10,16,16], a class for each pixel",
               setup_training(parse_config_text(cat(digits, kNet), "digits.yaml")));
  EXPECT_ERROR(
      ErrorKind::kConfig, "expected a data set with a class for each pixel",
      setup_training(parse_config_text(
          cat(digits, "model: {type: lenet5}\nexpect: {test_iou_min: 50}\n"), "digits.yaml")));
}

}  // namespace
}  // namespace convscope::testing
