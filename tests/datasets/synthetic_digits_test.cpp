// SPDX-License-Identifier: Apache-2.0
// synthetic_digits_test.cpp: tests that the drawn digits have the same bytes on every machine, and
// that no image is empty.
#include "datasets/synthetic_digits.h"

#include <vector>

#include "framework/parallel.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

// FNV-1a, 64 bits (G. Fowler, L. Noll, K. Vo 1991).
std::uint64_t hash_of(const Tensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    hash = (hash ^ tensor.data<std::uint8_t>()[i]) * 0x100000001b3u;
  }
  return hash;
}

TEST(SyntheticDigits, AreTheSameBytesWithAnyNumberOfThreads) {
  std::vector<std::uint64_t> hashes;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    hashes.push_back(hash_of(synthetic_digits({.train_size = 300, .test_size = 10}).train.images));
  }
  set_num_threads(0);
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

// This hash identifies the drawn images. If it changes, all results on this data set change, so
// note it in CHANGELOG.md.
TEST(SyntheticDigits, AreTheSameBytesOnEveryMachine) {
  EXPECT_EQ(hash_of(synthetic_digits({.train_size = 500, .test_size = 10}).train.images),
            13844213024841552018u);
}

TEST(SyntheticDigits, DoNotDependOnTheSizeOfThePart) {
  const Dataset small = synthetic_digits({.train_size = 20, .test_size = 10}).train;
  const Dataset large = synthetic_digits({.train_size = 200, .test_size = 10}).train;
  EXPECT_EQ(hash_of(small.images), hash_of(large.images.slice_rows(0, 20)));
}

TEST(SyntheticDigits, DifferBetweenSeedsPartsAndSamples) {
  const SyntheticDigitsOptions options{.train_size = 40, .test_size = 40};
  const DatasetSplits a = synthetic_digits(options);
  SyntheticDigitsOptions other = options;
  other.seed = 2;
  EXPECT_NE(hash_of(a.train.images), hash_of(synthetic_digits(other).train.images));
  EXPECT_NE(hash_of(a.train.images), hash_of(a.test.images));
  EXPECT_NE(hash_of(a.train.images.slice_rows(0, 10)), hash_of(a.train.images.slice_rows(10, 10)));
}

TEST(SyntheticDigits, HoldAsManyOfEachDigitWithInkOnEveryImage) {
  for (const std::int64_t size : {8, 28, 32}) {
    const Dataset data =
        synthetic_digits({.train_size = 100, .test_size = 10, .image_size = size}).train;
    EXPECT_EQ(data.images.shape(), (Shape{100, 1, size, size}));
    std::vector<int> count(10);
    for (std::int64_t n = 0; n < 100; ++n) {
      ++count[static_cast<std::size_t>(data.labels.at(n))];
      std::int64_t bright = 0;
      for (std::int64_t i = 0; i < size * size; ++i) {
        bright += data.images.at(n * size * size + i) > 100 ? 1 : 0;
      }
      EXPECT_GT(bright, size * size / 60) << "sample " << n;
      EXPECT_LT(bright, size * size / 2) << "sample " << n;
    }
    for (int times : count) EXPECT_EQ(times, 10);
  }
}

// A change here changes the figures of experiments/results/deform.md.
TEST(SyntheticDigits, AreWarpedByADrawOfTheirOwn) {
  const SyntheticDigitsOptions plain{.train_size = 500, .test_size = 10};
  SyntheticDigitsOptions warped = plain;
  warped.warp = 1;
  const Dataset a = synthetic_digits(plain).train, b = synthetic_digits(warped).train;
  EXPECT_EQ(hash_of(a.labels.to(DType::u8)), hash_of(b.labels.to(DType::u8)));
  EXPECT_EQ(hash_of(b.images), 5369698326321847737u);
  const std::int64_t pixels = b.images.numel() / b.size();
  double ink_a = 0, ink_b = 0;
  for (std::int64_t i = 0; i < b.size(); ++i) {
    int most = 0;
    for (std::int64_t j = 0; j < pixels; ++j) {
      ink_a += a.images.data<std::uint8_t>()[i * pixels + j];
      ink_b += b.images.data<std::uint8_t>()[i * pixels + j];
      most = std::max<int>(most, b.images.data<std::uint8_t>()[i * pixels + j]);
    }
    EXPECT_GE(most, 100) << "image " << i;
  }
  EXPECT_LT(ink_b, ink_a);  // digits are smaller, and their strokes thinner
}

TEST(SyntheticDigits, RefuseSizesWithoutSense) {
  EXPECT_ERROR(ErrorKind::kInvalid, "a warp of 0 to 1", synthetic_digits({.warp = 1.5}));
  EXPECT_ERROR(ErrorKind::kInvalid, "image size of 8 to 256", synthetic_digits({.image_size = 4}));
  EXPECT_ERROR(ErrorKind::kInvalid, "at least 0", synthetic_digits({.train_size = -1}));
}

}  // namespace
}  // namespace convscope
