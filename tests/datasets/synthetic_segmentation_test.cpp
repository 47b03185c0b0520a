// SPDX-License-Identifier: Apache-2.0
// synthetic_segmentation_test.cpp: tests that the drawn images and their labels have the same bytes
// on every machine, and that the labels show what is drawn.
#include "datasets/synthetic_segmentation.h"

#include <set>
#include <vector>

#include "framework/parallel.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

// FNV-1a, 64 bits (G. Fowler, L. Noll, K. Vo 1991), of the images, then of the labels.
std::uint64_t hash_of_images_and_labels(const Dataset& data) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const Tensor& tensor : {data.images, data.labels.to(DType::u8)}) {
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      hash = (hash ^ tensor.data<std::uint8_t>()[i]) * 0x100000001b3u;
    }
  }
  return hash;
}

TEST(SyntheticSegmentation, HasTheSameBytesWithAnyNumberOfThreads) {
  std::set<std::uint64_t> hashes;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    hashes.insert(hash_of_images_and_labels(synthetic_segmentation({.train_size = 100}).train));
  }
  set_num_threads(0);
  EXPECT_EQ(hashes.size(), 1u);
}

// This hash identifies the drawn images. If it changes, all results on this data set change, so
// note it in CHANGELOG.md.
TEST(SyntheticSegmentation, HasTheSameBytesOnEveryMachine) {
  EXPECT_EQ(hash_of_images_and_labels(synthetic_segmentation({.train_size = 200}).train),
            12543968253599896732u);
}

TEST(SyntheticSegmentation, SamplesDifferBetweenSeedsAndPartsOnly) {
  const SyntheticSegmentationOptions options{.train_size = 40, .test_size = 40};
  const DatasetSplits a = synthetic_segmentation(options);
  SyntheticSegmentationOptions other = options;
  other.train_size = 20;
  const DatasetSplits fewer = synthetic_segmentation(other);
  EXPECT_EQ(hash_of_images_and_labels(fewer.test), hash_of_images_and_labels(a.test));
  other = options;
  other.seed = 2;
  const DatasetSplits seeded = synthetic_segmentation(other);
  EXPECT_NE(hash_of_images_and_labels(a.train), hash_of_images_and_labels(seeded.train));
  EXPECT_NE(hash_of_images_and_labels(a.train), hash_of_images_and_labels(a.test));
}

// Returns the mean squared difference of the colours of neighbouring pixels, 0..255, over pairs
// with equal labels or over pairs with different labels.
double difference_of_neighbours(const Dataset& data, bool equal_labels) {
  const std::int64_t size = data.images.dim(2), plane = size * size;
  const std::uint8_t* const pixel = data.images.data<std::uint8_t>();
  const std::int32_t* const label = data.labels.data<std::int32_t>();
  double sum = 0, count = 0;
  for (std::int64_t i = 0; i + 1 < data.size() * plane; ++i) {
    if (i % size + 1 == size || (label[i] == label[i + 1]) != equal_labels) continue;
    for (std::int64_t c = 0; c < 3; ++c) {
      const std::int64_t at = (i / plane * 3 + c) * plane + i % plane;
      sum += (pixel[at] - pixel[at + 1]) * (pixel[at] - pixel[at + 1]);
      ++count;
    }
  }
  return sum / count;
}

TEST(SyntheticSegmentation, LabelsShowWhatIsDrawn) {
  for (const std::int64_t size : {16, 32, 48}) {
    const Dataset data =
        synthetic_segmentation({.train_size = 300, .test_size = 1, .image_size = size}).train;
    EXPECT_EQ(data.images.shape(), (Shape{300, 3, size, size}));
    EXPECT_EQ(data.labels.shape(), (Shape{300, size, size}));
    EXPECT_EQ(data.label_shape(), (Shape{size, size}));
    ASSERT_EQ(std::ssize(data.class_names), data.classes);
    std::vector<double> share(static_cast<std::size_t>(data.classes));
    for (std::int64_t i = 0; i < data.labels.numel(); ++i) {
      share.at(static_cast<std::size_t>(data.labels.at(i))) +=
          1.0 / static_cast<double>(data.labels.numel());
    }
    EXPECT_GT(share[0], 0.5) << "background";
    EXPECT_LT(share[0], 0.8) << "background";
    for (std::size_t k = 1; k < share.size(); ++k) {  // no class is found by its frequency
      EXPECT_NEAR(share[k], (1 - share[0]) / 4, 0.25 * (1 - share[0]) / 4) << data.class_names[k];
    }
    EXPECT_GT(difference_of_neighbours(data, false), 3 * difference_of_neighbours(data, true));
  }
}

TEST(SyntheticSegmentation, RefusesSizesWithoutSense) {
  EXPECT_ERROR(ErrorKind::kInvalid, "image size of 8 to 256",
               synthetic_segmentation({.image_size = 4}));
  EXPECT_ERROR(ErrorKind::kInvalid, "at least 0", synthetic_segmentation({.train_size = -1}));
}

}  // namespace
}  // namespace convscope
