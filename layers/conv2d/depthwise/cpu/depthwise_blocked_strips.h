// SPDX-License-Identifier: Apache-2.0
// depthwise_blocked_strips.h: how a row of pixels of 16 channels is cut into strips, for
// depthwise_blocked_simd.cpp and depthwise_blocked_weight_simd.cpp.
#pragma once

#include <cstdint>

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kBlock = 16;  // channels of a block

// Strips of at most `most` pixels and of nearly equal width: the first ones are a pixel wider.
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

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA
