// SPDX-License-Identifier: Apache-2.0
// segmentation_cuda_test.cpp: tests that a GPU trains on labels of pixels like the CPU, with
// batches from the host. By SGD, because Adam's first updates amplify differences of rounding.
#include <gtest/gtest.h>

#include "experiments/run_folder/run_summary.h"
#include "experiments/trainer/progress.h"
#include "experiments/trainer/trainer.h"
#include "tests/support/cuda.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope::testing {
namespace {

using SegmentationOnCuda = CudaTest;

struct EndOfRun {
  RunSummary summary;
  std::string log;
};

EndOfRun trained_on(const std::string& device) {
  TrainingSetup setup = setup_training(parse_config_text(
      cat("name: pixels\nseed: 3\nthreads: 1\ndevice: ", device,
          "\ndata: {set: synthetic_segmentation, train_size: 16, test_size: 6, image_size: 8, "
          "batch_size: 8}\nmodel: {type: unet, poolings: 1, width: 4}\n"
          "optim: {type: sgd, lr: 0.05}\ntrain: {epochs: 2}\n"),
      "pixels.yaml"));
  const TemporaryFolder root;
  RunFolder folder = RunFolder::create(root.path(), "pixels", 3);
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  EXPECT_EQ(trainer.run(), 0);
  return {parse_summary(text_of(folder.file("summary.json"))), text_of(folder.file("log.txt"))};
}

TEST_F(SegmentationOnCuda, HasTheResultsOfTheCpu) {
  const EndOfRun got = trained_on(cuda().str()), want = trained_on("cpu");
  EXPECT_NE(got.log.find("not recorded, because the host gathers the labels of pixels"),
            std::string::npos)
      << got.log;
  EXPECT_EQ(got.summary.step, "planned");
  EXPECT_NEAR(got.summary.train_loss, want.summary.train_loss, 1e-3);
  EXPECT_NEAR(*got.summary.test_loss, *want.summary.test_loss, 1e-3);
  // A few of the 384 test pixels and 1024 training pixels may be close to a tie.
  EXPECT_NEAR(*got.summary.acc, *want.summary.acc, 1);
  EXPECT_NEAR(got.summary.train_acc, want.summary.train_acc, 0.5);
  EXPECT_NEAR(*got.summary.test_iou, *want.summary.test_iou, 2);
  EXPECT_EQ(got.summary.test_class_iou.size(), 5u);
}

}  // namespace
}  // namespace convscope::testing
