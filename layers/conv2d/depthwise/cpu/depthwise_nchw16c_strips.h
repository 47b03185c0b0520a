// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c_strips.h: functions that split a row of NCHW16c pixels into strips of
// neighbouring pixels, and find the columns that a strip would read outside the image.
// depthwise_nchw16c_simd.cpp and depthwise_nchw16c_weight_simd.cpp use them.
#pragma once

#include <cstdint>

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kBlock = 16;  // channels of a block

// Returns the maximum number of pixels of a strip. Sanitizer builds have only narrow strips,
// because clang otherwise compiles this code for minutes.
#if defined(__SANITIZE_ADDRESS__)
constexpr int most_pixels(int) { return 4; }
#else
constexpr int most_pixels(int wanted) { return wanted; }
#endif

// Splits a row into strips of at most `most` pixels and nearly equal width; the first strips are a
// pixel wider.
struct StripWidths {
  CONVSCOPE_INLINE StripWidths(Index pixels, Index most) {
    const auto count = static_cast<std::uint32_t>(pixels);  // short division is fast
    const auto cut =
        (count + static_cast<std::uint32_t>(most) - 1) / static_cast<std::uint32_t>(most);
    strips = cut;
    least = cut > 0 ? count / cut : 0;
    wider = count - least * cut;
  }
  CONVSCOPE_INLINE Index width(Index strip) const { return least + (strip < wider ? 1 : 0); }

  Index strips = 0, least = 0, wider = 0;
};

// A strip's reach is the columns that its pixels read. The first Left and the last Right columns of
// the reach are outside `in`; both numbers are known at compile time.
template <int Left, int Right>
struct Over {
  static constexpr int left = Left, right = Right;
};

// Calls run(Over{}) for a strip whose reach begins in column `left` of `in` and ends `beyond`
// columns after the last column of `in`. The first and last tap of a kernel row are `Beside`
// columns apart. The function supports only the usual padding, with half of these columns on each
// side, or with one fewer on the right for even images with Step 2. For other padding it returns
// false and does not call run.
template <int Beside, int Step, class Run>
CONVSCOPE_INLINE bool with_border(Index left, Index beyond, Run run) {
  constexpr int kLeft = Beside / 2, kRight = (Beside + 1) / 2;
  constexpr int kLess = Step == 2 && kRight > 1 ? kRight - 1 : kRight;
  const bool over_left = left < 0;
  const bool over_right = beyond > 0;
  if (over_left && left != -kLeft) return false;
  if (over_right && beyond != kRight && beyond != kLess) return false;
  if (!over_right) {
    over_left ? run(Over<kLeft, 0>{}) : run(Over<0, 0>{});
  } else if (beyond == kRight) {
    over_left ? run(Over<kLeft, kRight>{}) : run(Over<0, kRight>{});
  } else if constexpr (kLess != kRight) {
    over_left ? run(Over<kLeft, kLess>{}) : run(Over<0, kLess>{});
  }
  return true;
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA
