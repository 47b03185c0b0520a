// SPDX-License-Identifier: Apache-2.0
// tiers.h: the kinds of numbers that kernels are checked on.
//
//   exact    small integers: sums of products below 2^24 are exact in f32
//   bounded  N(0,1): terms of random sign, so that sums stay small
//   offset   1 + 0.1 N(0,1), as in images and behind a ReLU: terms of one sign, so that partial
//            sums and their roundings are as large as they can be
//   heavy    N(0,1) / (0.1 + |N(0,1)|): few large numbers among many small ones
#pragma once

#include <cmath>

#include "framework/random.h"

namespace convscope::matrix {

enum class Tier { exact, bounded, offset, heavy };

inline constexpr Tier kRoundedTiers[] = {Tier::bounded, Tier::offset, Tier::heavy};

inline const char* name_of(Tier tier) {
  return tier == Tier::exact     ? "integers"
         : tier == Tier::bounded ? "normal numbers"
         : tier == Tier::offset  ? "numbers with an offset"
                                 : "numbers with heavy tails";
}

inline float draw(Tier tier, Generator& random) {
  switch (tier) {
    case Tier::exact:
      return static_cast<float>(random.below(7)) - 3.0f;
    case Tier::bounded:
      return random.normal();
    case Tier::offset:  // a power of two: no rounding; f16 ends at 65504
      return (1.0f + 0.1f * random.normal()) * 0x1p-4f;
    case Tier::heavy: {
      const float value = random.normal();
      return value / (0.1f + std::abs(random.normal()));
    }
  }
  return 0;
}

}  // namespace convscope::matrix
