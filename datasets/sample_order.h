// SPDX-License-Identifier: Apache-2.0
// sample_order.h: the random decisions of the loader, each a pure function of (seed, epoch,
// sample).
#pragma once

#include <cstdint>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Fills `order` with a permutation of 0..size-1 (Fisher and Yates 1938, Durstenfeld 1964).
CONVSCOPE_API void shuffled_order(std::vector<std::int32_t>& order, std::uint64_t seed,
                                  std::int64_t epoch);

struct Augmentation {
  std::int64_t dy = 0, dx = 0;  // start of the crop, -padding..padding pixels
  bool mirrored = false;
};
CONVSCOPE_API Augmentation augmentation(std::uint64_t seed, std::int64_t epoch, std::int64_t sample,
                                        std::int64_t padding);

// Returns the indices of all samples in an order in which every prefix has about the class
// proportions of the whole set. Limits and splits use this order.
CONVSCOPE_API std::vector<std::int64_t> balanced_order(const std::int32_t* labels,
                                                       std::int64_t count, int classes,
                                                       std::uint64_t seed);

}  // namespace convscope
