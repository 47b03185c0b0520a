// SPDX-License-Identifier: Apache-2.0
// cifar10_test.cpp: reads CIFAR-10's batches: valid, truncated and with invalid labels.
#include "datasets/cifar10.h"

#include <filesystem>

#include "tests/support/expect_error.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

std::string record(int label, char pixel) {
  return std::string(1, static_cast<char>(label)) + std::string(3072, pixel);
}

class Cifar10 : public ::testing::Test {
 protected:
  Cifar10() {
    for (int i = 1; i <= 5; ++i) {
      write_file(folder_ / cat("data_batch_", i, ".bin"),
                 record(i, static_cast<char>(i + 100)) + record(9, 'x'));
    }
    write_file(folder_ / "test_batch.bin", record(4, 'y'));
  }
  DatasetSplits load(const std::string& root) {
    Options options(dataset_types().get("cifar10").fields);
    options.set("root", root);
    return dataset_types().get("cifar10").load(options);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Cifar10, JoinsTheFiveBatchesInOrder) {
  const DatasetSplits splits = load(folder_.path());
  EXPECT_EQ(splits.train.images.shape(), (Shape{10, 3, 32, 32}));
  EXPECT_EQ(splits.test.size(), 1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(splits.train.labels.at(2 * i), i + 1);
    EXPECT_EQ(splits.train.images.at(2 * i * 3072), i + 101);
    EXPECT_EQ(splits.train.images.at((2 * i + 1) * 3072 - 1), i + 101);
    EXPECT_EQ(splits.train.labels.at(2 * i + 1), 9);
  }
  EXPECT_EQ(splits.train.class_names[3], "cat");
  // Test images are normalised with the statistics of the training images.
  Dataset test_alone = splits.test;
  set_channel_statistics(test_alone);
  EXPECT_NE(test_alone.mean, splits.train.mean);
  EXPECT_EQ(splits.test.mean, splits.train.mean);
  EXPECT_EQ(splits.test.std, splits.train.std);
}

TEST_F(Cifar10, ReadsClassNamesWhereTheyAreGiven) {
  write_file(folder_ / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_EQ(load(folder_.path()).test.class_names[9], "j");
  write_file(folder_ / "batches.meta.txt", "a\nb\n");
  EXPECT_ERROR(ErrorKind::kData, "10 class names, one on each line, got 2", load(folder_.path()));
}

TEST_F(Cifar10, IsFoundInTheFolderThatItsArchiveMakes) {
  const testing::TemporaryFolder outer;
  std::filesystem::copy(folder_.path(), outer / "cifar-10-batches-bin");
  EXPECT_EQ(load(outer.path()).train.size(), 10);
}

TEST_F(Cifar10, RefusesCutFilesWrongLabelsAndMissingBatches) {
  write_file(folder_ / "test_batch.bin", record(4, 'y').substr(0, 3000));
  EXPECT_ERROR(ErrorKind::kData, "whole records of 3073 bytes, got 3000", load(folder_.path()));
  write_file(folder_ / "test_batch.bin", "");
  EXPECT_ERROR(ErrorKind::kData, "got 0 bytes", load(folder_.path()));
  write_file(folder_ / "test_batch.bin", record(1, 'y') + record(11, 'y'));
  EXPECT_ERROR(ErrorKind::kData, "test_batch.bin: expected labels 0 to 9", load(folder_.path()));
  EXPECT_ERROR(ErrorKind::kData, "got 11 at index 1", load(folder_.path()));
  std::filesystem::remove(folder_ / "data_batch_4.bin");
  EXPECT_ERROR(ErrorKind::kData, "data_batch_4.bin", load(folder_.path()));
  EXPECT_ERROR(ErrorKind::kData, "convscope data fetch cifar10", load("/nowhere"));
}

}  // namespace
}  // namespace convscope
