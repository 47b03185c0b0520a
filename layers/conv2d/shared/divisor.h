// SPDX-License-Identifier: Apache-2.0
// divisor.h: division by a number that is known before a kernel starts, as one product: a GPU has
// no instruction for n / d and needs about twenty of them.
#pragma once

#include <cstdint>

namespace convscope {

// n / d for 0 <= n with n d < 2^32: with m = 2^32 / d rounded up, n m / 2^32 is too large by less
// than n / 2^32 <= 1 / d.
struct Divisor {
  int d = 1;
  std::uint32_t magic = 0;  // m; 0: d is 1
  constexpr Divisor() = default;
  constexpr explicit Divisor(int divisor)
      : d(divisor), magic(divisor <= 1 ? 0 : 0xffffffffu / static_cast<unsigned>(divisor) + 1) {}
  constexpr int of(int n) const {
    return magic == 0 ? n : static_cast<int>((static_cast<std::uint64_t>(n) * magic) >> 32);
  }
  constexpr int rest(int n) const { return n - of(n) * d; }
};

}  // namespace convscope
