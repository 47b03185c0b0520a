// SPDX-License-Identifier: Apache-2.0
// pixel_labels_test.cpp: tests that data sets with a class for each pixel keep image and labels
// together: in batches, augmented, in parts of a batch, and in parts of the set.
#include <algorithm>
#include <set>

#include "datasets/loader.h"
#include "datasets/synthetic_segmentation.h"
#include "framework/random.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

// Returns images whose pixels are 10 times their labels, which are random. Then a batch shows
// whether each label belongs to its pixel. The first pixel of image n has the value n.
Dataset labels_as_pixels(std::int64_t count) {
  constexpr std::int64_t kHeight = 5, kWidth = 7;
  Dataset data;
  data.name = "labels_as_pixels";
  data.classes = 20;
  data.images = Tensor::empty({count, 1, kHeight, kWidth}, DType::u8);
  data.labels = Tensor::empty({count, kHeight, kWidth}, DType::i32);
  data.mean = {0};
  data.std = {1.0 / 255};  // so that a batch has the values of the pixels
  Generator random(3, 4);
  for (std::int64_t i = 0; i < data.labels.numel(); ++i) {
    const bool is_first = i % (kHeight * kWidth) == 0;
    const auto label =
        static_cast<std::int32_t>(is_first ? i / (kHeight * kWidth) % 20 : 1 + random.below(19));
    data.labels.data<std::int32_t>()[i] = label;
    data.images.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(10 * label);
  }
  return data;
}

void expect_labels_of_pixels(const Batch& batch) {
  ASSERT_EQ(batch.labels.shape(), (Shape{batch.x.dim(0), batch.x.dim(2), batch.x.dim(3)}));
  for (std::int64_t i = 0; i < batch.labels.numel(); ++i) {
    ASSERT_NEAR(batch.x.at(i), 10 * batch.labels.at(i), 1e-3) << "pixel " << i;
  }
}

TEST(PixelLabels, AreMovedAndMirroredWithTheirImages) {
  const Dataset data = labels_as_pixels(20);
  for (const std::int64_t padding : {0, 3}) {
    for (const bool mirror : {false, true}) {
      Loader loader(data, {.batch_size = 8, .crop_padding = padding, .mirror = mirror});
      std::set<std::int32_t> first_labels;
      std::int64_t background = 0;
      for (int epoch = 0; epoch < 3; ++epoch) {
        loader.start_epoch(epoch);
        for (Batch batch; loader.next(batch);) {
          expect_labels_of_pixels(batch);
          first_labels.insert(batch.labels.data<std::int32_t>()[0]);
          const std::int32_t* const label = batch.labels.data<std::int32_t>();
          background += std::count(label, label + batch.labels.numel(), 0);
        }
      }
      if (padding == 0) {
        EXPECT_GT(first_labels.size(), 3u) << "batches begin with different images";
        EXPECT_EQ(background, 3) << "only the first pixel of image 0 is background";
      } else {
        EXPECT_GT(background, 100) << "pixels outside of an image are background";
      }
    }
  }
}

TEST(PixelLabels, StayWithTheirImagesInPartsOfABatchAndOfTheSet) {
  const Dataset data = labels_as_pixels(23);
  Loader loader(data, {.batch_size = 9, .part = 1, .parts = 2});
  loader.start_epoch(0);
  for (Batch batch; loader.next(batch);) expect_labels_of_pixels(batch);

  const auto [rest, validation] = split(data, 6, 1);
  const Dataset few = limited(rest, 5, 1);
  EXPECT_EQ(rest.size(), 17);
  EXPECT_EQ(validation.size(), 6);
  EXPECT_EQ(few.size(), 5);
  for (const Dataset& part : {rest, validation, few}) {
    Loader all(part, {.batch_size = part.size()});
    all.start_epoch(0);
    Batch batch;
    ASSERT_TRUE(all.next(batch));
    expect_labels_of_pixels(batch);
  }
  const Dataset other = limited(rest, 5, 2);
  EXPECT_FALSE(std::equal(few.labels.data<std::int32_t>(),
                          few.labels.data<std::int32_t>() + few.labels.numel(),
                          other.labels.data<std::int32_t>()))
      << "another seed chooses other images";
}

TEST(PixelLabels, RefusesLabelsOfAnotherSize) {
  Dataset data = labels_as_pixels(4);
  data.labels = Tensor::zeros({4, 7, 5}, DType::i32);
  EXPECT_ERROR(ErrorKind::kInvalid,
               "expected labels i32[4] or, with a class for each pixel, i32[4,5,7]",
               Loader(data, {.batch_size = 2}));
}

}  // namespace
}  // namespace convscope
