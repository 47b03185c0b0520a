// SPDX-License-Identifier: Apache-2.0
// tiers.h: the kinds of numbers that kernels are checked on.
//
//   exact        small integers: sums of products below 2^24 are exact in f32
//
// Rounding errors have random signs (the bound is Algorithm::growth()):
//   bounded      N(0,1): terms of random sign, so that sums stay small
//   offset       1 + 0.1 N(0,1), as in images and after a ReLU: terms of one sign, so that partial
//                sums and their rounding errors are as large as possible
//   heavy        N(0,1) / (0.1 + |N(0,1)|): few large numbers among many small ones
//
// Rounding errors have one sign (the bound is Algorithm::worst_growth()):
//   flat         one number everywhere, as in a black image or after a constant initialisation: the
//                same number is added to the sum again and again, and rounds the same way
//   alternating  the same number with alternating signs: the largest input of Winograd transforms,
//                and the highest frequency of a Fourier transform
//   one_large    one number everywhere except one element that is 1024 times as large: small terms
//                are added to a large sum, and each rounds by a unit of the large one
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>

#include "framework/random.h"

namespace convscope::matrix {

enum class Tier { exact, bounded, offset, heavy, flat, alternating, one_large };

inline constexpr Tier kRoundedTiers[] = {Tier::bounded,     Tier::flat,  Tier::offset,
                                         Tier::alternating, Tier::heavy, Tier::one_large};
inline constexpr std::size_t kRoundedTierCount = std::size(kRoundedTiers);
inline constexpr Tier kAllTiers[] = {Tier::exact, Tier::bounded,     Tier::offset,   Tier::heavy,
                                     Tier::flat,  Tier::alternating, Tier::one_large};

inline bool rounds_one_way(Tier tier) {
  return tier == Tier::flat || tier == Tier::alternating || tier == Tier::one_large;
}

inline const char* name_of(Tier tier) {
  switch (tier) {
    case Tier::exact:
      return "integers";
    case Tier::bounded:
      return "normal numbers";
    case Tier::offset:
      return "numbers with an offset";
    case Tier::heavy:
      return "numbers with heavy tails";
    case Tier::flat:
      return "one number everywhere";
    case Tier::alternating:
      return "one number with alternating signs";
    case Tier::one_large:
      return "one large number among equal ones";
  }
  return "";
}

// The numbers of one tensor, one after the other.
class TierNumbers {
 public:
  TierNumbers(Tier tier, Generator random)
      : tier_(tier), random_(random), one_(rounds_one_way(tier) ? 1 + random_.uniform() : 1) {}

  // Returns the next number. If all terms of a sum have one sign, the sum could exceed 65504, the
  // largest f16. In such tiers, numbers are therefore scaled to about 2^-4, by a power of two,
  // which is exact.
  // 2^-4.
  float next() {
    const std::int64_t at = at_++;
    switch (tier_) {
      case Tier::exact:
        return static_cast<float>(random_.below(7)) - 3.0f;
      case Tier::bounded:
        return random_.normal();
      case Tier::offset:
        return (1.0f + 0.1f * random_.normal()) * 0x1p-4f;
      case Tier::heavy: {
        const float value = random_.normal();
        return value / (0.1f + std::abs(random_.normal()));
      }
      case Tier::flat:
        return one_ * 0x1p-4f;
      case Tier::alternating:
        return at % 2 == 0 ? one_ * 0x1p-4f : one_ * -0x1p-4f;
      case Tier::one_large:
        return at == 1 ? one_ * 0x1p6f : one_ * 0x1p-4f;
    }
    return 0;
  }

 private:
  Tier tier_;
  Generator random_;
  float one_;
  std::int64_t at_ = 0;
};

}  // namespace convscope::matrix
