// SPDX-License-Identifier: Apache-2.0
// loader_test.cpp: the loader's sample order, batches, normalisation and augmentation.
#include "datasets/loader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/idx_files.h"

namespace convscope {
namespace {

using testing::numbered_dataset;

// Returns the images of the remaining batches of an epoch as numbers; after the images of each
// batch come its labels.
std::vector<float> rest_of(Loader& loader) {
  std::vector<float> out;
  Batch batch;
  while (loader.next(batch)) {
    const float* x = batch.x.data<float>();
    out.insert(out.end(), x, x + batch.x.numel());
    for (std::int64_t i = 0; i < batch.labels.numel(); ++i) {
      out.push_back(static_cast<float>(batch.labels.at(i)));
    }
  }
  return out;
}

std::vector<float> epoch_of(const Dataset& dataset, const LoaderOptions& options,
                            std::int64_t epoch, std::int64_t first_batch = 0) {
  Loader loader(dataset, options);
  loader.start_epoch(epoch, first_batch);
  return rest_of(loader);
}

TEST(Loader, IsAPureFunctionOfSeedAndEpoch) {
  const Dataset data = numbered_dataset(50);
  LoaderOptions options{.batch_size = 8, .seed = 3, .crop_padding = 1, .mirror = true};
  Loader loader(data, options);
  loader.start_epoch(0);
  const auto first = rest_of(loader);
  loader.start_epoch(1);
  const auto second = rest_of(loader);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch_of(data, options, 1), second);
  loader.start_epoch(0);
  EXPECT_EQ(rest_of(loader), first);
  options.prefetch = false;
  EXPECT_EQ(epoch_of(data, options, 0), first);
  options.seed = 4;
  EXPECT_NE(epoch_of(data, options, 0), first);
}

// No crops: they would make the epochs differ, too.
TEST(Loader, ShufflesAnewForEachEpochAndSeed) {
  const Dataset data = numbered_dataset(50);
  std::set<std::vector<float>> orders;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      orders.insert(epoch_of(data, {.batch_size = 8, .seed = seed}, epoch));
    }
  }
  EXPECT_EQ(orders.size(), 12u);
}

// Disables shuffling, because the test shows that the crops by themselves differ between epochs.
TEST(Loader, CropsAnewForEachEpochAndSeed) {
  const Dataset data = numbered_dataset(20);
  std::set<std::vector<float>> crops;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      crops.insert(epoch_of(
          data, {.batch_size = 8, .shuffle = false, .seed = seed, .crop_padding = 2}, epoch));
    }
  }
  EXPECT_EQ(crops.size(), 12u);
}

TEST(Loader, EachOrderIsAsLikelyAsAnyOther) {
  Dataset data = numbered_dataset(3, 1, 1, 3);  // the label identifies the sample
  std::map<std::vector<std::int32_t>, int> times;
  Loader loader(data, {.batch_size = 3});
  Batch batch;
  constexpr int kEpochs = 6000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    loader.start_epoch(epoch);
    ASSERT_TRUE(loader.next(batch));
    const std::int32_t* const labels = batch.labels.data<std::int32_t>();
    ++times[{labels[0], labels[1], labels[2]}];
  }
  EXPECT_EQ(times.size(), 6u);
  const double deviation = std::sqrt(kEpochs * (1.0 / 6) * (5.0 / 6));
  for (const auto& [order, count] : times) EXPECT_NEAR(count, kEpochs / 6, 5 * deviation);
}

// The loader normalises crops per channel. Pixels outside the image are black before the
// normalisation.
TEST(Loader, CropsAreNormalisedByChannelWithBlackOutside) {
  Dataset data = numbered_dataset(1, 3, 4, 1);
  data.mean = {0.1, 0.4, 0.7};
  data.std = {0.5, 0.25, 0.125};
  Loader loader(data, {.batch_size = 1, .crop_padding = 4});
  Batch batch;
  int black = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    loader.start_epoch(epoch);
    ASSERT_TRUE(loader.next(batch));
    for (std::int64_t c = 0; c < 3; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const std::uint8_t* const from = data.images.data<std::uint8_t>() + c * 16;
      for (std::int64_t i = 0; i < 16; ++i) {
        const double pixel = batch.x.at(c * 16 + i) * data.std[channel] + data.mean[channel];
        const double level = pixel * 255;
        const bool is_black = std::abs(level) < 1e-3;
        black += is_black ? 1 : 0;
        EXPECT_TRUE(
            is_black ||
            std::any_of(from, from + 16, [&](int value) { return std::abs(level - value) < 1e-3; }))
            << "channel " << c << ": " << level;
      }
    }
  }
  EXPECT_GT(black, 100);  // most crops exceed the image
}

TEST(Loader, GoesOnInTheMiddleOfAnEpoch) {
  const Dataset data = numbered_dataset(50);
  for (const bool prefetch : {false, true}) {
    const LoaderOptions options{.batch_size = 8, .prefetch = prefetch, .crop_padding = 2};
    Loader loader(data, options);
    loader.start_epoch(4);
    Batch batch;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.index, 2);
    EXPECT_EQ(epoch_of(data, options, 4, 3), rest_of(loader));
  }
}

TEST(Loader, DropsAStartedEpochWhenAnotherBegins) {
  const Dataset data = numbered_dataset(200);
  const LoaderOptions options{.batch_size = 4};
  const auto expected = epoch_of(data, options, 7);
  Loader loader(data, options);
  Batch batch;
  for (int taken = 0; taken < 20; ++taken) {
    loader.start_epoch(taken);
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next(batch));
  }
  loader.start_epoch(7);
  EXPECT_EQ(rest_of(loader), expected);
}

TEST(Loader, ShowsEverySampleOnceAndKeepsLabelsWithTheirImages) {
  Dataset data = numbered_dataset(23, 1, 1, 23);
  data.mean = {0};
  data.std = {1};
  Loader loader(data, {.batch_size = 5});
  EXPECT_EQ(loader.batches_per_epoch(), 5);
  loader.start_epoch(0);
  Batch batch;
  std::set<int> seen;
  std::int64_t last_size = 0;
  bool in_order = true;
  while (loader.next(batch)) {
    last_size = batch.x.dim(0);
    ASSERT_EQ(batch.labels.dim(0), last_size);
    for (std::int64_t i = 0; i < last_size; ++i) {
      const int label = static_cast<int>(batch.labels.at(i));
      in_order = in_order && label == static_cast<int>(seen.size());
      seen.insert(label);
      EXPECT_EQ(batch.x.at(i), static_cast<float>(data.images.at(label) / 255.0));
    }
  }
  EXPECT_EQ(seen.size(), 23u);
  EXPECT_EQ(last_size, 3);
  EXPECT_FALSE(in_order);
}

TEST(Loader, KeepsTheOrderOfTheSetWithoutShuffle) {
  const Dataset data = numbered_dataset(9);
  Loader loader(data, {.batch_size = 4, .shuffle = false});
  loader.start_epoch(5);
  Batch batch;
  std::int32_t expected = 0;
  while (loader.next(batch)) {
    for (std::int64_t i = 0; i < batch.labels.numel(); ++i) {
      EXPECT_EQ(batch.labels.at(i), expected++ % 10);
    }
  }
  EXPECT_EQ(expected, 9);
}

TEST(Loader, NormalisesEachChannel) {
  const Dataset data = numbered_dataset(40, 3, 5);
  Loader loader(data, {.batch_size = 40});
  loader.start_epoch(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  for (std::int64_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::int64_t n = 0; n < 40; ++n) {
      for (std::int64_t i = 0; i < 25; ++i) {
        const double v = batch.x.at((n * 3 + c) * 25 + i);
        sum += v;
        squares += v * v;
      }
    }
    EXPECT_NEAR(sum / 1000, 0, 1e-6);  // f32 values of size 1: errors of 1e-7 each
    EXPECT_NEAR(squares / 1000, 1, 1e-6);
  }
}

TEST(Loader, CropsAndMirrorsWithinThePadding) {
  Dataset data = numbered_dataset(1, 1, 3, 1);
  for (int i = 0; i < 9; ++i)
    data.images.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i + 1);
  data.mean = {0};
  data.std = {1.0 / 255};  // so that x is the pixel value
  Loader loader(data, {.batch_size = 1, .crop_padding = 1, .mirror = true});
  std::set<std::vector<int>> seen;
  Batch batch;
  for (int epoch = 0; epoch < 400; ++epoch) {
    loader.start_epoch(epoch);
    ASSERT_TRUE(loader.next(batch));
    std::vector<int> pixels;
    for (int i = 0; i < 9; ++i) pixels.push_back(static_cast<int>(std::lround(batch.x.at(i))));
    seen.insert(pixels);
  }
  std::set<std::vector<int>> expected;
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      for (const bool mirror : {false, true}) {
        std::vector<int> pixels;
        for (int h = 0; h < 3; ++h) {
          for (int w = 0; w < 3; ++w) {
            const int y = h + dy;
            const int x = (mirror ? 2 - w : w) + dx;
            pixels.push_back(y < 0 || y > 2 || x < 0 || x > 2 ? 0 : 3 * y + x + 1);
          }
        }
        expected.insert(pixels);
      }
    }
  }
  EXPECT_EQ(seen, expected);  // all 18, each with probability 1/18 in 400 epochs
}

TEST(Loader, HandlesEmptySetsBatchesLargerThanTheSetAndDropLast) {
  Batch batch;
  Loader empty(numbered_dataset(0), {});
  empty.start_epoch(0);
  EXPECT_FALSE(empty.next(batch));
  Loader large(numbered_dataset(3), {.batch_size = 64});
  large.start_epoch(0);
  ASSERT_TRUE(large.next(batch));
  EXPECT_EQ(batch.x.shape(), (Shape{3, 1, 4, 4}));
  EXPECT_FALSE(large.next(batch));
  EXPECT_FALSE(large.next(batch));
  Loader none(numbered_dataset(3), {.batch_size = 64, .drop_last = true});
  EXPECT_EQ(none.batches_per_epoch(), 0);
  Loader whole(numbered_dataset(10), {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(whole.batches_per_epoch(), 2);
}

TEST(Loader, RefusesWrongUseWithASentence) {
  EXPECT_ERROR(ErrorKind::kInvalid, "batch size of at least 1, got 0",
               Loader(numbered_dataset(3), {.batch_size = 0}));
  EXPECT_ERROR(ErrorKind::kInvalid, "crop padding",
               Loader(numbered_dataset(3), {.crop_padding = -1}));
  EXPECT_ERROR(ErrorKind::kInvalid, "images u8 [N,C,H,W]", Loader(Dataset{}, {}));
  Loader loader(numbered_dataset(3), {});
  Batch batch;
  EXPECT_ERROR(ErrorKind::kInvalid, "start_epoch before", loader.next(batch));
  EXPECT_ERROR(ErrorKind::kInvalid, "first batch of 0 to 1, got 2", loader.start_epoch(0, 2));
}

TEST(Loader, ReusesItsMemory) {
  Loader loader(numbered_dataset(100), {.batch_size = 8});
  Batch batch;
  loader.start_epoch(0);
  ASSERT_TRUE(loader.next(batch));
  const std::int64_t before = memory_stats(Device{}).allocations;
  while (loader.next(batch)) {
  }
  loader.start_epoch(1);
  while (loader.next(batch)) {
  }
  EXPECT_EQ(memory_stats(Device{}).allocations, before);
}

TEST(Subset, LimitsAndSplitsKeepTheClassesInProportion) {
  Dataset data = numbered_dataset(200);
  for (std::int32_t n = 0; n < 200; ++n) data.labels.data<std::int32_t>()[n] = n / 20;
  for (const std::int64_t limit : {10, 50, 70}) {
    const Dataset part = limited(data, limit, 1);
    ASSERT_EQ(part.size(), limit);
    std::vector<int> count(10);
    for (std::int64_t i = 0; i < limit; ++i) ++count[static_cast<std::size_t>(part.labels.at(i))];
    for (int times : count) EXPECT_EQ(times, limit / 10);
  }
  EXPECT_EQ(limited(data, 0, 1).size(), 200);
  EXPECT_EQ(limited(data, 1000, 1).size(), 200);
}

TEST(Subset, SplitLosesAndRepeatsNothingAndDependsOnTheSeed) {
  const Dataset data = numbered_dataset(200, 1, 1, 200);  // the label identifies the sample
  const auto labels_of = [](const Dataset& part) {
    std::vector<int> out;
    for (std::int64_t i = 0; i < part.size(); ++i) {
      out.push_back(static_cast<int>(part.labels.at(i)));
    }
    return out;
  };
  const Dataset by_ten = [&] {
    Dataset out = data;
    out.labels = numbered_dataset(200).labels;
    return out;
  }();
  const auto [rest, validation] = split(by_ten, 30, 5);
  EXPECT_EQ(rest.size(), 170);
  EXPECT_EQ(validation.size(), 30);
  EXPECT_EQ(validation.mean, data.mean);
  const auto [rest2, validation2] = split(data, 30, 5);
  std::vector<int> all = labels_of(rest2);
  for (int label : labels_of(validation2)) all.push_back(label);
  std::sort(all.begin(), all.end());
  for (int i = 0; i < 200; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i);
  const auto [rest3, validation3] = split(by_ten, 30, 6);
  bool same = true;
  for (std::int64_t i = 0; i < 30; ++i) {
    same = same && validation.images.at(i) == validation3.images.at(i);
  }
  EXPECT_FALSE(same);
  EXPECT_ERROR(ErrorKind::kInvalid, "split off 0 to 200", split(data, 201, 5));
}

TEST(Dataset, StatisticsAreThoseOfThePixels) {
  Dataset data = numbered_dataset(1, 2, 1, 1);
  data.images = Tensor::from(
      std::span<const std::uint8_t>(std::array<std::uint8_t, 4>{0, 255, 51, 51}.data(), 4),
      {1, 2, 1, 2});
  set_channel_statistics(data);
  EXPECT_DOUBLE_EQ(data.mean[0], 0.5);
  EXPECT_DOUBLE_EQ(data.std[0], 0.5);
  EXPECT_DOUBLE_EQ(data.mean[1], 0.2);
  EXPECT_EQ(data.std[1], 1.0);  // a single value
}

// Each process reads one part of a batch. For any number of processes, the concatenated parts are
// the whole batch.
TEST(Loader, PartsOfABatchMakeTheWhole) {
  const Dataset dataset = numbered_dataset(23);
  for (const std::int64_t parts : {2, 3, 8}) {
    Loader whole(dataset, {.batch_size = 8, .seed = 5});
    std::vector<std::unique_ptr<Loader>> shares;
    for (std::int64_t part = 0; part < parts; ++part) {
      shares.push_back(std::make_unique<Loader>(
          dataset, LoaderOptions{.batch_size = 8, .seed = 5, .part = part, .parts = parts}));
      shares.back()->start_epoch(2);
      EXPECT_EQ(shares.back()->batches_per_epoch(), whole.batches_per_epoch());
    }
    whole.start_epoch(2);
    Batch batch, share;
    while (whole.next(batch)) {
      std::vector<float> together, labels;
      for (const auto& loader : shares) {
        ASSERT_TRUE(loader->next(share));
        EXPECT_EQ(share.whole, batch.x.dim(0));
        together.insert(together.end(), share.x.data<float>(),
                        share.x.data<float>() + share.x.numel());
        EXPECT_EQ(share.x.dim(0), share.labels.numel());
      }
      const float* const x = batch.x.data<float>();
      EXPECT_EQ(together, std::vector<float>(x, x + batch.x.numel()));
    }
  }
  EXPECT_ERROR(ErrorKind::kInvalid, "part from 0", Loader(dataset, {.part = 2, .parts = 2}));
}

}  // namespace
}  // namespace convscope
