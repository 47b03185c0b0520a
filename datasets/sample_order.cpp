// SPDX-License-Identifier: Apache-2.0
// sample_order.cpp: the random decisions of the loader, each a pure function of (seed, epoch,
// sample).
#include "datasets/sample_order.h"

#include <algorithm>

#include "framework/check.h"
#include "framework/random.h"

namespace convscope {
namespace {

// Random-number streams for shuffling, augmentation and balanced subsets. They use the run's seed
// and differ from the streams of weights and dropout.
constexpr std::uint64_t kShuffleStream = 0xda7a'0001'0000'0000u;
constexpr std::uint64_t kAugmentStream = 0xda7a'0002'0000'0000u;
constexpr std::uint64_t kBalanceStream = 0xda7a'0003'0000'0000u;

template <class Index>
void shuffle(std::vector<Index>& values, Generator generator) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[generator.below(static_cast<std::uint32_t>(i))]);
  }
}

}  // namespace

void shuffled_order(std::vector<std::int32_t>& order, std::uint64_t seed, std::int64_t epoch) {
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  shuffle(order, Generator(seed, kShuffleStream + static_cast<std::uint64_t>(epoch)));
}

Augmentation augmentation(std::uint64_t seed, std::int64_t epoch, std::int64_t sample,
                          std::int64_t padding) {
  const Philox4 block = random_block(seed, kAugmentStream + static_cast<std::uint64_t>(epoch),
                                     static_cast<std::uint64_t>(sample));
  const auto choices = static_cast<std::uint64_t>(2 * padding + 1);
  // Maps random bits to an offset by multiply and shift. The bias of the result is below 2^-24 for
  // any padding of up to 127 pixels.
  const auto offset = [&](std::uint32_t bits) {
    return static_cast<std::int64_t>(bits * choices >> 32) - padding;
  };
  return {offset(block.x[0]), offset(block.x[1]), (block.x[2] & 1u) != 0};
}

std::vector<std::int64_t> balanced_order(const std::int32_t* labels, std::int64_t count,
                                         int classes, std::uint64_t seed) {
  std::vector<std::vector<std::int64_t>> by_class(static_cast<std::size_t>(classes));
  for (std::int64_t i = 0; i < count; ++i) {
    CONVSCOPE_CHECK(labels[i] >= 0 && labels[i] < classes, "dataset", "expected labels below ",
                    classes, ", got ", labels[i], " at index ", i);
    by_class[static_cast<std::size_t>(labels[i])].push_back(i);
  }
  // The r-th of the n shuffled samples of a class gets the fraction (r + 1/2) / n. All samples are
  // then sorted by their fractions, so every prefix has about the class proportions of the whole
  // set.
  struct Place {
    std::int64_t odd, twice;  // 2r + 1 and 2n: compared as fractions, without rounding
    std::int64_t index;
  };
  std::vector<Place> places;
  for (std::size_t c = 0; c < by_class.size(); ++c) {
    shuffle(by_class[c], Generator(seed, kBalanceStream + c));
    const auto size = static_cast<std::int64_t>(by_class[c].size());
    for (std::int64_t r = 0; r < size; ++r) {
      places.push_back({2 * r + 1, 2 * size, by_class[c][static_cast<std::size_t>(r)]});
    }
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return a.odd * b.twice < b.odd * a.twice;
  });
  std::vector<std::int64_t> out;
  for (const Place& place : places) out.push_back(place.index);
  return out;
}

}  // namespace convscope
