// SPDX-License-Identifier: Apache-2.0
// class_counts_test.cpp: tests the confusion matrix and the top-5 accuracy, and their files.
#include "experiments/trainer/evaluation/class_counts.h"

#include "experiments/report/csv_table.h"
#include "experiments/run_folder/run_summary.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

Tensor labels_from(const std::vector<std::int32_t>& values) {
  Tensor out = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::i32);
  std::ranges::copy(values, out.data<std::int32_t>());
  return out;
}

TEST(ClassCounts, RowsAreTheTrueClassesAndColumnsThePredictedOnes) {
  Tensor scores = Tensor::zeros({3, 2}, DType::f32);
  scores.data<float>()[1] = 1;  // the first sample is predicted as 1, the others by ties as 0
  ClassCounts counts;
  counts.add(scores, labels_from({0, 0, 1}));
  counts.add(scores, labels_from({0, 0, 0}));
  EXPECT_EQ(counts.matrix, (std::vector<std::int64_t>{3, 2, 1, 0}));
  EXPECT_EQ(counts.samples, 6);
  EXPECT_EQ(counts.top5_accuracy(), std::nullopt) << "there are only two classes";
  EXPECT_EQ(counts.csv({"cat", "a, b"}), "true_class,cat,\"a, b\"\ncat,3,2\n\"a, b\",1,0\n");
}

TEST(ClassCounts, TopFiveCountsTheFiveLargestScores) {
  Tensor scores = Tensor::zeros({8, 8}, DType::f64);
  std::vector<std::int32_t> labels;
  for (int n = 0; n < 8; ++n) {  // scores fall from class 0 to class 7
    labels.push_back(n);
    for (int k = 0; k < 8; ++k) scores.data<double>()[n * 8 + k] = -k;
  }
  ClassCounts counts;
  counts.add(scores, labels_from(labels));
  EXPECT_EQ(counts.in_top5, 5);
  EXPECT_EQ(counts.top5_accuracy(), 62.5);
  // Equal scores rank by their class, so that a network without any result is not called right.
  ClassCounts equal;
  equal.add(Tensor::zeros({8, 8}, DType::f32), labels_from(labels));
  EXPECT_EQ(equal.in_top5, 5);
  for (const std::int64_t classes : {5, 6}) {
    ClassCounts few;
    few.add(Tensor::zeros({1, classes}, DType::f32), labels_from({0}));
    EXPECT_EQ(few.top5_accuracy().has_value(), classes == 6);
  }
}

TEST(ClassCounts, MoreClassesThanTheMatrixHasStillHaveATopFive) {
  ClassCounts counts;
  counts.add(Tensor::zeros({1, ClassCounts::kMaxClasses + 1}, DType::f32), labels_from({3}));
  EXPECT_TRUE(counts.matrix.empty());
  EXPECT_EQ(counts.top5_accuracy(), 100.0);
}

// Three pixels of an image: two of class 0, one of class 2. Predicted: 0, 1, 2.
TEST(ClassCounts, IouIsTheShareOfTheUnionThatIsRight) {
  Tensor scores = Tensor::zeros({1, 4, 1, 3}, DType::f32);
  const std::vector<std::int64_t> predicted = {0, 1, 2};
  for (std::int64_t i = 0; i < 3; ++i) {
    scores.data<float>()[predicted[static_cast<std::size_t>(i)] * 3 + i] = 1;
  }
  ClassCounts counts;
  counts.add(scores, labels_from({0, 0, 2}).reshape({1, 1, 3}));
  EXPECT_EQ(counts.samples, 3);
  // Class 1 is predicted once, but no pixel has it; class 3 does not occur.
  EXPECT_EQ(counts.class_iou(), (std::vector<double>{50, 0, 100, -1}));
  Evaluation result;
  result.class_iou = counts.class_iou();
  EXPECT_EQ(result.mean_iou(), 50) << "over the three classes that occur";
  ClassCounts of_images;
  of_images.add(Tensor::zeros({1, 4}, DType::f32), labels_from({3}));
  EXPECT_TRUE(of_images.class_iou().empty());
}

TEST(ClassCounts, ARunWritesTheMatrixOfItsTestImages) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(2);
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  Progress progress(Progress::Mode::quiet);
  Trainer trainer(setup, folder, progress);
  ASSERT_EQ(trainer.run(), 0);
  const CsvTable table =
      parse_csv(text_of(folder.file("confusion.csv")), "confusion.csv", {"true_class"});
  ASSERT_EQ(table.rows.size(), static_cast<std::size_t>(kClasses));
  double images = 0, right = 0;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    for (std::size_t k = 1; k < table.columns.size(); ++k) {
      const double count = number_in(table.rows[row][k]);
      images += count;
      if (k == row + 1) right += count;
    }
  }
  const RunSummary summary = parse_summary(text_of(folder.file("summary.json")));
  EXPECT_EQ(images, static_cast<double>(setup.test->dataset().size()));
  EXPECT_NEAR(100 * right / images, *summary.acc, 1e-9);
  EXPECT_EQ(summary.test_top5, std::nullopt) << "there are only four classes";
}

}  // namespace
}  // namespace convscope::testing
